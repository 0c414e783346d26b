"""The smallest useful agent: one fenced bash command a turn, its output as the answer."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from typing import Any

from forkgym.agents.base import ChatFormat, Completion, Episode, Policy, SamplingParams, Segment, Step
from forkgym.agents.errors import ContextLengthError, HarnessError
from forkgym.agents.loops.recording import Cancelled, described, finish, recording, timed_step
from forkgym.agents.loops.sampling import sample
from forkgym.envs import formats
from forkgym.envs.base import Malformed, ToolCall
from forkgym.envs.core import CodingEnv
from forkgym.envs.text import cap
from forkgym.errors import ConfigError

SYSTEM = (
    "You fix bugs in code. Each turn, write one bash command:\n```bash\ncommand\n```\n"
    "You then see its output. When the bug is fixed, submit:\n```bash\nsubmit\n```"
)


class BashAgent:
    """Plays one episode as a single token stream.

    The whole stream goes to the policy each turn, so an engine can keep its prefix. Only what the policy sampled is
    marked ``sampled``; the stop token is part of it only if the policy emitted it. Sampled tokens count against the
    environment's token budget.

    - ``format``: the chat format of the policy's model.
    - ``system``: the system message; ``None`` for none. ``examples``: messages between it and the task.
    - ``actions``: how text becomes an action, a name in ``forkgym.envs.formats``.
    - ``observation_chars``: longer observations keep head and tail; ``None`` leaves the environment's own cap.
    """

    def __init__(
        self,
        format: ChatFormat,
        *,
        system: str | None = SYSTEM,
        examples: Sequence[Mapping[str, Any]] = (),
        actions: str = "bash",
        observation_chars: int | None = None,
        name: str = "bash",
    ) -> None:
        if observation_chars is not None and observation_chars < 1:
            raise ConfigError(f"observation_chars must be at least 1, not {observation_chars}")
        self.name = name
        self.format = format
        self._system, self._examples = system, list(examples)
        self._parse = formats.build(actions)
        self._observation_chars = observation_chars

    def run(
        self,
        env: CodingEnv,
        policy: Policy | None,
        *,
        task: str,
        seed: int,
        sampling: SamplingParams,
        episode: str,
        group: str,
    ) -> Episode:
        """Play ``task`` to its end; see ``Agent.run``.

        ``seed`` seeds the environment and, with the turn's number, every call of the policy: members of one group need
        different seeds. ``ConfigError`` (an unknown task, no policy) is raised, everything else is recorded.
        """
        if policy is None:
            raise ConfigError(f"agent {self.name!r} needs a policy")
        record = Episode(episode, task, group, self.name, seed, sampling=sampling.shaping)
        with recording(record):
            self._play(env, policy, record, sampling)
            finish(record, env)
        return record

    def _play(self, env: CodingEnv, policy: Policy, record: Episode, sampling: SamplingParams) -> None:
        start = time.perf_counter()
        observation, _ = env.reset(seed=record.seed, options={"task": record.task})
        record.metrics["reset_seconds"] = time.perf_counter() - start
        record.prompt = [*self._opening(env), {"role": "user", "content": observation["text"]}]
        segment = Segment()
        record.segments.append(segment)
        segment.append_prompt(self._start(env, record.prompt), 0)
        for turn in itertools.count():
            start = time.perf_counter()
            try:
                completion = sample(
                    policy, segment.ids, sampling, seed=record.seed, turn=turn, stop_ids=self.format.stop_ids
                )
            except ContextLengthError:
                env.truncate("context")
                return
            segment.append_completion(completion, turn)
            if completion.finish_reason == "cancelled":
                raise Cancelled("the policy was told to stop")
            policy_seconds = time.perf_counter() - start
            answers = self._act(env, record, completion, turn, policy_seconds)
            if env.outcome is not None:
                return
            segment.append_prompt(self._answer(segment.ids, answers), turn)

    def _opening(self, env: CodingEnv) -> list[Mapping[str, Any]]:
        """The messages before the task."""
        return [*([] if self._system is None else [{"role": "system", "content": self._system}]), *self._examples]

    def _start(self, env: CodingEnv, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        """The ids of the opening."""
        return self.format.start(messages)

    def _actions(self, env: CodingEnv, ids: Sequence[int]) -> list[tuple[ToolCall | Malformed, str]]:
        """What one sampled turn does, in order, each with the role of the message that answers it."""
        return [(self._parse(self.format.decode(ids)), "user")]

    def _answer(self, ids: list[int], messages: Sequence[Mapping[str, Any]]) -> list[int]:
        """The new ids that show observations and ask for the next turn."""
        extended = self.format.extend(ids, messages)
        if extended[: len(ids)] != ids:
            raise HarnessError(f"chat format {self.format.name!r} rewrote tokens that were already in the stream")
        return extended[len(ids) :]

    def _act(
        self, env: CodingEnv, record: Episode, completion: Completion, turn: int, policy_seconds: float
    ) -> list[Mapping[str, Any]]:
        """Do what the turn says until the episode ends; the answers as messages."""
        env.charge_tokens(len(completion.ids))
        text = self.format.decode(completion.ids)
        answers: list[Mapping[str, Any]] = []
        for action, role in self._actions(env, completion.ids):
            shown, reward, seconds = timed_step(env, action)
            if self._observation_chars is not None:
                shown = cap(shown, self._observation_chars)
            record.steps.append(Step(turn, text, described(env, action), shown, reward, seconds, policy_seconds))
            answers.append({"role": role, "content": shown})
            if env.outcome is not None:
                break
            text, policy_seconds = "", 0.0  # told once, with the turn's first action
        return answers
