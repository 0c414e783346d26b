"""Agents that know the answer, do nothing, or do anything: they check tasks and write demonstrations.

``DemonstrationAgent`` plays what a competent user would type, through the real environment, as token ids for SFT.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from forkgym.agents.base import Episode, Policy, SamplingParams, Step
from forkgym.agents.loops.bash import BashAgent
from forkgym.agents.loops.edits import view_command, write_commands
from forkgym.agents.loops.recording import finish, recording, timed_step
from forkgym.agents.policies.scripted import ScriptedPolicy
from forkgym.agents.tokenizers import Tokenizer
from forkgym.envs.base import ToolCall
from forkgym.envs.core import CodingEnv
from forkgym.tasks.base import Task

SUBMIT: ToolCall = {"tool": "submit", "arguments": {}}
_UNLIMITED = 1 << 20


def oracle_texts(task: Task) -> list[str]:
    """The turns of a competent bash user: look at the files, mend them, submit. One fenced command each."""
    commands = [*view_command(task), *write_commands(task), "submit"]
    return [f"```bash\n{command}\n```" for command in commands]


def oracle_actions(task: Task) -> list[ToolCall]:
    """The reference solution as tool calls, then ``submit``."""
    writes: list[ToolCall] = [{"tool": "bash", "arguments": {"command": command}} for command in write_commands(task)]
    return [*writes, SUBMIT]


def random_actions(env: CodingEnv, seed: int) -> Iterator[ToolCall]:
    """Valid calls without end, drawn from the action space with ``seed``; the environment's own space is not used."""
    space = copy.deepcopy(env.action_space)
    space.seed(seed)
    while True:
        yield space.sample()


class _FixedAgent:
    """Plays tool calls that follow from environment and seed alone; uses no policy and records no tokens."""

    def __init__(self, name: str, actions: Callable[[CodingEnv, int], Iterable[ToolCall]]) -> None:
        self.name = name
        self._actions = actions

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
        """Play ``task``; see ``Agent.run``. ``policy`` and ``sampling`` have nothing to do here."""
        record = Episode(episode, task, group, self.name, seed)
        with recording(record):
            observation, _ = env.reset(seed=seed, options={"task": task})
            record.prompt = [{"role": "user", "content": observation["text"]}]
            for turn, action in enumerate(self._actions(env, seed)):
                text, reward, seconds = timed_step(env, action)
                record.steps.append(Step(turn, "", {**action}, text, reward, seconds))
                if env.outcome is not None:
                    break
            finish(record, env)
        return record


class OracleAgent(_FixedAgent):
    """Writes the task's reference solution with real commands and submits it. A sound task scores 1."""

    def __init__(self) -> None:
        super().__init__("oracle", lambda env, seed: oracle_actions(env.task))


class NopAgent(_FixedAgent):
    """Submits at once. A sound task scores 0."""

    def __init__(self) -> None:
        super().__init__("nop", lambda env, seed: [SUBMIT])


class RandomAgent(_FixedAgent):
    """Draws valid calls from the action space with the episode's seed, until it happens to submit or a limit ends it.

    For smoke tests: it runs commands that no one thought of. It needs a limit: the task's own, or ``max_turns``.
    """

    def __init__(self) -> None:
        super().__init__("random", random_actions)


class DemonstrationAgent:
    """Plays ``texts`` of the task through ``agent``, in place of a policy.

    The episode has the prompts and observations that ``agent`` would show a policy, and the texts as ``sampled``
    tokens. Their log-probabilities are 0.0, since nobody sampled them: fit for SFT, not for policy gradients. The
    ``harness`` is ``demonstration``; use only episodes whose verdict is resolved.
    """

    name = "demonstration"

    def __init__(
        self, agent: BashAgent, tokenizer: Tokenizer, texts: Callable[[Task], Sequence[str]] = oracle_texts
    ) -> None:
        self._agent = agent
        self._tokenizer = tokenizer
        self._texts = texts

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
        """Play ``task``; see ``Agent.run``. ``policy`` is not asked; of ``sampling`` only the stop ids matter."""
        script = ScriptedPolicy(lambda call: self._texts(env.task)[call.turn], self._tokenizer, logprob=lambda _: 0.0)
        whole = replace(sampling, max_tokens=_UNLIMITED)
        record = self._agent.run(env, script, task=task, seed=seed, sampling=whole, episode=episode, group=group)
        record.harness, record.sampling = self.name, {}
        return record
