"""The smallest useful agent: one fenced bash command a turn, its output as the answer."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from forkgym.agents.base import ChatFormat, Completion, Episode, Policy, SamplingParams, Segment, Step
from forkgym.agents.errors import ContextLengthError, HarnessError
from forkgym.agents.loops.prompts import Prompt, fill, load_prompt, variables
from forkgym.agents.loops.recording import Cancelled, described, finish, recording, timed_step
from forkgym.agents.loops.sampling import sample
from forkgym.envs import formats
from forkgym.envs.base import Malformed, ToolCall
from forkgym.envs.core import CodingEnv
from forkgym.envs.text import cap
from forkgym.errors import ConfigError

Count = Annotated[int, Field(ge=1)]  # a range that is checked before a model is loaded
SYSTEM = (
    "You fix bugs in code. Each turn, write one bash command:\n```bash\ncommand\n```\n"
    "You then see its output. When the bug is fixed, submit:\n```bash\nsubmit\n```"
)


class BashAgent:
    """Plays one episode as a single token stream, or as several where it compacts.

    The whole stream goes to the policy each turn, so an engine can keep its prefix. Only what the policy sampled is
    marked ``sampled``; the stop token is part of it only if the policy emitted it. Sampled tokens count against the
    environment's token budget.

    - ``format``: the chat format of the policy's model.
    - ``system``: the system message; ``None`` for none. ``examples``: messages between it and the task.
    - ``actions``: how text becomes an action, a name in ``forkgym.envs.formats``.
    - ``observation_chars``: longer observations keep head and tail; ``None`` leaves the environment's own cap.
    - ``prompt``: a file with these texts in place of ``system`` and ``examples``, see ``forkgym.agents.loops.prompts``.
    - ``compact_at``: a stream that would grow beyond this many tokens ends in a summary, which the model is asked for;
      a new one goes on from the task, the summary and the last observation. The summary is a turn like any other: it
      is sampled, trained and paid for, only that it does nothing in the environment. ``None``: never.
    - ``privileged``: also record what ``CodingEnv.privileged`` says before each turn, which takes a grading each. The
      policy never sees it.
    """

    SYSTEM = SYSTEM

    def __init__(
        self,
        format: ChatFormat,
        *,
        system: str | None = SYSTEM,
        examples: Sequence[Mapping[str, Any]] = (),
        actions: str = "bash",
        observation_chars: Count | None = None,
        prompt: str | None = None,
        compact_at: Count | None = None,
        privileged: bool = False,
        name: str = "bash",
    ) -> None:
        for option, value in (("observation_chars", observation_chars), ("compact_at", compact_at)):
            if value is not None and value < 1:
                raise ConfigError(f"{option} must be at least 1, not {value}")
        if prompt is not None and (system != self.SYSTEM or examples):
            raise ConfigError("a prompt brings its own system message and examples: leave system and examples out")
        self.name = name
        self.format = format
        # A system message given as it is may hold dollar signs: they are not variables.
        own = Prompt(None if system is None else system.replace("$", "$$"), examples=list(examples))
        self._prompt = own if prompt is None else load_prompt(prompt)
        self._compact_at = compact_at
        self._parse = formats.build(actions)
        self._observation_chars = observation_chars
        self._privileged = privileged

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
        values = variables(env, observation["text"])
        record.prompt = self._opening(env, values)
        try:
            self._turns(env, policy, record, sampling, values)
        except ContextLengthError:
            env.truncate("context")

    def _turns(
        self, env: CodingEnv, policy: Policy, record: Episode, sampling: SamplingParams, values: Mapping[str, str]
    ) -> None:
        """Turn after turn until the environment ends the episode. Raises ``ContextLengthError``."""
        segment = self._open(record, self._start(env, record.prompt), 0)
        turn = 0
        while True:
            completion, seconds = self._sample(env, policy, record, sampling, turn)
            answers = self._act(env, record, completion, turn, seconds)
            if env.outcome is not None:
                return
            added = self._answer(segment.ids, answers)
            if self._compact_at is None or len(segment.ids) + len(added) <= self._compact_at:
                segment.append_prompt(added, turn)
            else:
                asked = {"role": "user", "content": fill(self._prompt.summarize, values)}
                segment.append_prompt(self._answer(segment.ids, [asked]), turn)
                turn += 1
                summary, _ = self._sample(env, policy, record, sampling, turn)
                env.charge_tokens(len(summary.ids))
                segment = self._open(record, self._resume(env, record, summary, answers, values), turn)
            turn += 1

    def _open(self, record: Episode, ids: Sequence[int], turn: int) -> Segment:
        record.segments.append(Segment())
        record.segments[-1].append_prompt(ids, turn)
        return record.segments[-1]

    def _sample(
        self, env: CodingEnv, policy: Policy, record: Episode, sampling: SamplingParams, turn: int
    ) -> tuple[Completion, float]:
        """The model's continuation of the last segment, added to it, and how long it took."""
        if self._privileged:
            record.privileged.append(env.privileged())
        segment, start = record.segments[-1], time.perf_counter()
        completion = sample(policy, segment.ids, sampling, seed=record.seed, turn=turn, stop_ids=self.format.stop_ids)
        segment.append_completion(completion, turn)
        if completion.finish_reason == "cancelled":
            raise Cancelled("the policy was told to stop")
        return completion, time.perf_counter() - start

    def _resume(
        self,
        env: CodingEnv,
        record: Episode,
        summary: Completion,
        answers: Sequence[Mapping[str, Any]],
        values: Mapping[str, str],
    ) -> list[int]:
        """The ids of a new stream: the opening, whose task is followed by the summary and what was last seen."""
        record.metrics["compactions"] = record.metrics.get("compactions", 0.0) + 1.0
        notes = self.format.parse(summary.ids).text.strip()
        seen = "\n\n".join(str(answer["content"]) for answer in answers)
        more = fill(self._prompt.resume, values, summary=notes, observation=seen)
        *before, task = record.prompt
        return self._start(env, [*before, {**task, "content": f"{task['content']}\n\n{more}"}])

    def _opening(self, env: CodingEnv, values: Mapping[str, str]) -> list[Mapping[str, Any]]:
        """The messages that an episode begins with."""
        return self._prompt.opening(values)

    def _start(self, env: CodingEnv, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        """The ids of the opening."""
        return self.format.start(messages)

    def _actions(self, env: CodingEnv, ids: Sequence[int]) -> list[tuple[ToolCall | Malformed, str]]:
        """What one sampled turn does, in order, each with the role of the message that answers it."""
        return [(self._parse(self.format.decode(ids)), "user")]

    def _answer(self, ids: list[int], messages: Sequence[Mapping[str, Any]]) -> list[int]:
        """The new ids that show observations and ask for the next turn."""
        try:
            extended = self.format.extend(ids, messages)
        except ConfigError as error:  # of this conversation, while others of the run may go on
            raise HarnessError(f"chat format {self.format.name!r} cannot write the observation: {error}") from error
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
