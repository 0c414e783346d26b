"""The conformance check of a harness: it plays a small task with a scripted model, and its record must be exact.

``check(harness)`` returns a finding for each case. The expected values follow from the script: what the model said is
known to the byte, and so are its ids and log-probabilities.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from forkgym.agents.base import Completion, Episode, Policy, SamplingParams, Segment
from forkgym.agents.errors import PolicyError
from forkgym.agents.formats.chatml import ChatML
from forkgym.agents.harnesses.agent import KINDS, HarnessAgent
from forkgym.agents.harnesses.base import Harness
from forkgym.agents.harnesses.host import HostAgent
from forkgym.agents.harnesses.wires import Asked, compare
from forkgym.agents.policies import scripted
from forkgym.agents.policies.scripted import ScriptedPolicy
from forkgym.envs.core import CodingEnv
from forkgym.sandboxes.base import Limits
from forkgym.tasks.base import Budget, Grading, Task

if TYPE_CHECKING:
    from forkgym.agents.gateway.server import Gateway

_TEST = b"""import unittest, hello
class Test(unittest.TestCase):
    def test_hello(self):
        self.assertEqual(hello.TEXT, "h\\u00e9llo, you")
"""
_WORK = 'TEXT = "h\u00e9llo, you"'
_EDIT = r"""printf 'TEXT = "h\303\251llo, you"\n' > hello.py"""
_LOOK = "cat hello.py; printf '<|im_end|>'"


@dataclass(frozen=True)
class Finding:
    """One case of the check. ``detail`` says what was found."""

    case: str
    passed: bool
    detail: str


@dataclass
class _Witness:
    """A policy that remembers what it was asked and what it said."""

    policy: Policy
    said: list[tuple[tuple[int, ...], Completion]] = field(default_factory=list[tuple[tuple[int, ...], Completion]])

    @property
    def version(self) -> int:
        return self.policy.version

    def generate(self, prompts: Sequence[Sequence[int]], params: SamplingParams) -> list[Completion]:
        completions = self.policy.generate(prompts, params)
        self.said += zip(map(tuple, prompts), completions, strict=True)
        return completions

    def close(self) -> None:
        self.policy.close()


class _Tapped(HarnessAgent):
    """Remembers what the harness asked."""

    @contextmanager
    def _open(self, policy: Policy) -> Generator[tuple[Gateway, str]]:
        self.asked: list[Asked] = []
        with super()._open(policy) as (gateway, socket):
            gateway.tap(lambda path, body: self.asked.append(Asked(path, body)))
            yield gateway, socket


class _TappedHost(_Tapped, HostAgent):
    pass


def check(
    harness: Harness,
    *,
    sandbox: str = "local",
    host: bool = False,
    echo: Callable[[Finding], object] | None = None,
) -> list[Finding]:
    """Run all cases, with the harness in the sandbox or on the ``host``. Raises ``InstallError``, ``ConfigError``."""
    chat = ChatML(scripted.ByteTokenizer())
    agent = (_TappedHost if host else _Tapped)(chat, harness=harness, include=KINDS, stall=120.0)
    found: list[Finding] = []

    def add(case: str, passed: bool, detail: str) -> None:
        found.append(Finding(case, passed, detail))
        if echo is not None:
            echo(found[-1])

    witness = _Witness(ScriptedPolicy(_script(harness)))
    episode = _play(agent, witness, sandbox)
    calls = f"{len(witness.said)} calls, {sum(len(said.ids) for _, said in witness.said)} tokens sampled"
    add("the work is handed in and graded", episode.reward == 1.0, f"{_end(episode)}, reward {episode.reward}, {calls}")
    add("each sampled token in one place", *_each_once(episode.segments, witness))
    add("the model read the ids on record", *_prompts(episode.segments, witness))
    add("log-probabilities and versions", *_numbers(episode.segments, witness))
    add("history is never taken for rewritten", *_forks(episode))
    asked = agent.asked
    add(
        "streamed or whole, the same", *compare(asked, lambda: ScriptedPolicy(_script(harness)), chat, episode.segments)
    )
    for case, policy, turns, wanted in _endings(harness):
        ended = _play(agent, policy, sandbox, turns=turns)
        add(case, (ended.status, ended.reason) == wanted, f"{_end(ended)} after {ended.metrics['seconds']:.1f} s")
    return found


def _endings(harness: Harness) -> list[tuple[str, Policy, int, tuple[str, str]]]:
    """Ways to end that are not the harness's own: case, policy, turns, and the status and reason they must have."""
    look = _say(harness.shell(_LOOK))

    return [
        ("a budget of calls ends it", ScriptedPolicy(lambda call: look), 2, ("truncated", "turns")),
        ("a full window ends it", ScriptedPolicy(lambda call: look, window=64), 20, ("truncated", "context")),
        ("a broken engine ends it", ScriptedPolicy([look, PolicyError("the engine broke")]), 20, ("failed", "engine")),
    ]


def _play(agent: HarnessAgent, policy: Policy, sandbox: str, turns: int = 20) -> Episode:
    task = Task(
        id="check/hello",
        family="check",
        instruction=f"Create hello.py in the current directory. Its only line is: {_WORK}",
        split="test",
        files={"README": b"An empty project.\n"},
        hidden={"test_hello.py": _TEST},
        oracle={"hello.py": f"{_WORK}\n".encode()},
        grading=Grading("unittest", ("test_hello.Test.test_hello",), 30.0),
        budget=Budget(turns, 300.0),
    )
    env = CodingEnv([task], sandbox=sandbox, mounts=agent.mounts, limits=Limits(memory=2 << 30, pids=512))
    try:
        sampling = SamplingParams(max_tokens=1 << 16)
        return agent.run(env, policy, task=task.id, seed=0, sampling=sampling, episode="check", group="check")
    finally:
        env.close()


def _script(harness: Harness) -> Callable[[scripted.Call], str]:
    """What the scripted model says: an edit, a look, the end; a title where no tools are offered."""
    turns = [_say(harness.shell(_EDIT)), f"Now I look.\n{_say(harness.shell(_LOOK))}"]
    turns.append("All done." if harness.done is None else _say(harness.done))

    def line(call: scripted.Call) -> str:
        return turns[min(call.turn, len(turns) - 1)] if "<tools>" in call.text else "A title"

    return line


def _say(call: tuple[str, Mapping[str, Any]]) -> str:
    """A tool call as a model might write it: with spaces that no program would write again.

    The token stream must keep them, whatever the harness makes of them in its next request.
    """
    name, arguments = call
    pairs = ",  ".join(f"{json.dumps(key)} :{json.dumps(value)}" for key, value in arguments.items())
    return f'<tool_call>\n{{"name": {json.dumps(name)}, "arguments": {{ {pairs} }}}}\n</tool_call>'


def _end(episode: Episode) -> str:
    return f"{episode.status}({episode.reason})" + (f": {episode.detail[-300:]}" if episode.detail else "")


def _runs(segment: Segment) -> list[tuple[int, int]]:
    """Where each sampled turn begins and ends."""
    edges = [0, *(i for i in range(1, len(segment.ids)) if segment.sampled[i] != segment.sampled[i - 1])]
    ends = [*edges[1:], len(segment.ids)]
    return [(a, b) for a, b in zip(edges, ends, strict=True) if segment.ids and segment.sampled[a]]


def _each_once(segments: Sequence[Segment], witness: _Witness) -> tuple[bool, str]:
    found = sorted(tuple(segment.ids[a:b]) for segment in segments for a, b in _runs(segment))
    said = sorted(completion.ids for _, completion in witness.said)
    return found == said, f"{len(said)} turns said, {len(found)} on record"


def _prompts(segments: Sequence[Segment], witness: _Witness) -> tuple[bool, str]:
    found = sorted(tuple(segment.ids[:a]) for segment in segments for a, _ in _runs(segment))
    asked = sorted(prompt for prompt, _ in witness.said)
    return found == asked, f"{sum(map(len, asked))} prompt tokens"


def _numbers(segments: Sequence[Segment], witness: _Witness) -> tuple[bool, str]:
    said = {(prompt, completion.ids): completion for prompt, completion in witness.said}
    wrong = 0
    for segment in segments:
        spans = _runs(segment)
        for a, b in spans:
            completion = said.get((tuple(segment.ids[:a]), tuple(segment.ids[a:b])))
            right = completion is not None and tuple(segment.logprobs[a:b]) == completion.logprobs
            wrong += not right or set(segment.version[a:b]) != {witness.version}
        rest = [i for i, mine in enumerate(segment.sampled) if not mine]
        wrong += any(segment.logprobs[i] != 0.0 or segment.version[i] != -1 for i in rest)
    return not wrong, "as sampled" if not wrong else f"{wrong} spans differ"


def _forks(episode: Episode) -> tuple[bool, str]:
    """One stream for the task; what else there is must be a side call."""
    counts = {
        name.removeprefix("gateway/"): int(n) for name, n in episode.metrics.items() if name.startswith("gateway/")
    }
    streams = len(episode.segments) - counts.get("side", 0)
    shown = ", ".join(f"{name} × {n}" for name, n in counts.items()) or "nothing to note"
    return streams == 1, f"{streams} stream{'' if streams == 1 else 's'} for the task; {shown}"
