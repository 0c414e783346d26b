"""``CodingEnv``: a Gymnasium environment over a task and a sandbox that forks.

One episode: ``reset`` makes a sandbox ready for a task and returns its instruction; each ``step`` is one tool call; the
end is graded on a fork. ``docs/semantics.md`` gives the contract as tables.
"""

from __future__ import annotations

import copy
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast, get_args

import gymnasium as gym
from gymnasium.spaces import Dict, Space

from forkgym.envs import options as checks
from forkgym.envs import rewards
from forkgym.envs.base import (
    Call,
    Evidence,
    Malformed,
    RewardFunction,
    RewardMode,
    Tool,
    ToolCall,
    ToolResult,
    TruncationReason,
)
from forkgym.envs.episode import EpisodeState, Outcome, line
from forkgym.envs.errors import EpisodeOverError, FailedError, ResetError, blame, is_permanent
from forkgym.envs.privileged import describe
from forkgym.envs.spaces import ToolCalls, UnicodeText
from forkgym.envs.text import cap, valid, written
from forkgym.envs.tools.registry import build
from forkgym.envs.world import Holdings, World
from forkgym.errors import ConfigError
from forkgym.sandboxes.base import Backend, Limits, Mount, Sandbox
from forkgym.sandboxes.errors import SnapshotError
from forkgym.tasks.base import Budget, Submission, Task, Verdict
from forkgym.tasks.errors import GradingError
from forkgym.tasks.loader import Spec
from forkgym.tasks.submission import digest
from forkgym.tasks.taskset import TaskSet

Observation = dict[str, str]
StepResult = tuple[Observation, float, bool, bool, dict[str, Any]]

MAX_INSTRUCTION_CHARS = 1 << 16
RESET_TRIES = 3
LOST = "The environment failed"
"""How the last observation of a failed episode begins."""


class CodingEnv(gym.Env[Observation, ToolCall]):
    """An agent works in a sandbox on one task of a set.

    - ``tasks``: whatever ``forkgym.tasks.load`` takes: a pattern such as ``"swe/tiny/*"``, a path, a task, a task set.
      ``split`` keeps one split of it.
    - ``sandbox``: a backend's name or object. ``limits`` replaces the tasks' own sandbox limits: ``Limits``, or a
      mapping such as ``{"memory": "512M"}``. ``mounts`` are directories of the host shown read-only in the agent's
      sandbox and its forks, never in a grader's.
    - ``tools``: names or tool objects; ``None`` takes those that the tasks name, which must then be the same for all.
    - ``reward``: a named function of the evidence, a dotted path, a function, or a weighted sum such as
      ``{"weights": {"resolved": 1, "minimal": 0.2}, "gate": "applies"}``. ``reward_mode``: ``final`` (at the end),
      ``delta`` (change of the reward since the last step) or ``potential`` (final, plus change of the score).
    - ``max_turns``, ``max_seconds``, ``max_tokens``: replace the task's budget where given.
    - ``max_observation_chars``: longer tool output keeps head and tail.
    - ``tree_digests``: also take a digest of the changed files after each step, on a fork; see ``trees``.
    - ``render_mode``: ``ansi`` (``render()`` returns the transcript) or ``human`` (each step is printed).

    Raises ``ConfigError`` for an unknown option or name, and ``SandboxUnavailableError`` where the backend cannot run.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi", "human"], "render_fps": 1}  # noqa: RUF012  # Gymnasium's name

    def __init__(
        self,
        tasks: Spec,
        *,
        split: str | None = None,
        sandbox: str | Backend = "local",
        limits: Limits | Mapping[str, object] | None = None,
        mounts: Sequence[Mount] = (),
        tools: Sequence[str | Tool] | None = None,
        reward: str | RewardFunction | Mapping[str, Any] = "resolved",
        reward_mode: RewardMode = "final",
        max_turns: int | None = None,
        max_seconds: float | None = None,
        max_tokens: int | None = None,
        max_observation_chars: int = 8000,
        tree_digests: bool = False,
        render_mode: str | None = None,
        **extra: object,
    ) -> None:
        checks.refuse_unknown(CodingEnv, extra)
        checks.check_choice("reward_mode", reward_mode, ["final", "delta", "potential"])
        checks.check_choice("render_mode", render_mode, [None, *self.metadata["render_modes"]])
        checks.check_positive("max_turns", max_turns)
        checks.check_positive("max_tokens", max_tokens)
        checks.check_positive("max_observation_chars", max_observation_chars)
        checks.check_positive("max_seconds", max_seconds, whole=False)
        self.render_mode = render_mode
        self._world = World(tasks, split, sandbox, limits, mounts)
        self._tools = build(self._world.common_tools() if tools is None else tools)
        self._reward = rewards.build(reward)
        self._mode = reward_mode
        self._overrides = (max_turns, max_seconds, max_tokens)
        self._cap = max_observation_chars
        self._tree_digests = tree_digests
        self.action_space = ToolCalls(self._tools)
        longest = max(max_observation_chars, MAX_INSTRUCTION_CHARS)
        self.observation_space = cast("Space[Observation]", Dict({"text": UnicodeText(longest)}))
        self._state: EpisodeState | None = None
        self._episodes = -1
        self._saved: dict[str, tuple[EpisodeState, Any]] = {}
        self._own(None)

    # ---- the Gymnasium interface

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode. ``options={"task": id}`` names the task, else the environment's generator draws one.

        A sandbox that fails to get ready is replaced, up to three in all, unless the next would fail alike. Raises
        ``ConfigError`` for unknown options, ``TaskNotFoundError`` for an unknown task and ``ResetError`` if no sandbox
        got ready.
        """
        wanted = checks.reset_task(options)
        super().reset(seed=seed)
        self._state = None
        self._holdings.close_box()
        self._episodes = self._episodes + 1 if seed is None else 0
        task = self._world.task(wanted) if wanted is not None else self._world.draw(self.np_random)
        self._prepare(task)
        text = cap(task.instruction, MAX_INSTRUCTION_CHARS)
        self._record("task", text)
        return {"text": text}, self._current("info").info()

    def step(self, action: Mapping[str, Any] | Malformed) -> StepResult:
        """Run one tool call. Whatever is wrong with ``action`` is answered in the observation and costs a turn.

        Raises ``EpisodeOverError`` if no episode is running. Infrastructure failures do not raise: they end the episode
        unscored, with ``truncated`` True and ``info["failure"]`` set.
        """
        state = self._running("step")
        state.turn += 1
        self._record("action", action)
        try:
            with blame("harness"):
                result = self._act(state, action)
                if self._tree_digests:
                    state.trees.append(digest(self._world.submission(self.box, state.task)))
            limit = None if result.submit else state.exhausted()
            if result.submit or limit is not None:
                return self._end(state, result, limit)
            reward = self._shaped(state) if self._mode != "final" else 0.0
        except FailedError as failure:
            return self._fail(state, failure)
        return self._respond(result, reward)

    def render(self) -> str | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The transcript so far in mode ``ansi``; ``None`` in mode ``human``, which prints as it goes."""
        if self.render_mode != "ansi" or self._state is None:
            return None
        return "\n".join(line(kind, text) for kind, text in self._state.transcript)

    def close(self) -> None:
        """Remove the sandbox and the snapshots that this environment took. Idempotent."""
        self._state = None
        self._holdings.close()

    # ---- beyond Gymnasium

    @property
    def outcome(self) -> Outcome | None:
        """How the episode ended, or ``None`` while it runs."""
        return None if self._state is None else self._state.outcome

    @property
    def lineage(self) -> tuple[tuple[str, int], ...]:
        """(sandbox id, turn) of each fork that led here, oldest first."""
        return () if self._state is None else self._state.lineage

    @property
    def box(self) -> Sandbox:
        """The live sandbox, for harnesses and people; what happens in it is part of the episode."""
        if self._state is None or self._holdings.box is None:
            raise EpisodeOverError("there is no sandbox: call reset() first")
        return self._holdings.box

    @property
    def tasks(self) -> TaskSet:
        """The tasks that episodes are drawn from."""
        return self._world.tasks

    @property
    def tools(self) -> list[dict[str, Any]]:
        """The tools as OpenAI function-calling definitions: new objects on every call."""
        return [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": copy.deepcopy(dict(tool.parameters)),
                },
            }
            for tool in self._tools
        ]

    @property
    def task(self) -> Task:
        """The task of the current episode."""
        return self._current("task").task

    @property
    def left(self) -> Budget:
        """What is left of the running episode's budget; ``None`` where there is no limit."""
        return self._running("left").left()

    @property
    def transcript(self) -> list[tuple[str, str]]:
        """(kind, text) of everything said so far; kinds are task, action and observation."""
        return list(self._current("transcript").transcript)

    @property
    def trees(self) -> list[str]:
        """A digest of the changed files after each step so far (``tree_digests``), as of a submission made then."""
        return list(self._current("trees").trees)

    def usage(self) -> dict[str, Any]:
        """What the episode has used: turns, tokens, seconds, and the sandbox's own counters."""
        state, used = self._current("usage"), self.box.usage()
        return {
            "turns": state.turn,
            "tokens": state.tokens,
            "seconds": state.seconds,
            "cpu_seconds": used.cpu_seconds,
            "peak_memory": used.peak_memory,
        }

    def charge_tokens(self, count: int) -> None:
        """Count tokens that the agent used. Past ``max_tokens`` the next step ends the episode, after its tool call.

        Raises ``ConfigError`` for anything but a whole number of at least 0.
        """
        state = self._running("charge_tokens")
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:  # pyright: ignore
            raise ConfigError(f"charge_tokens({count!r}): give a whole number of at least 0")
        state.tokens += count

    def truncate(self, reason: TruncationReason) -> StepResult:
        """End the episode by a limit that only the caller knows (``context``), graded as at any limit."""
        state = self._running("truncate")
        checks.check_choice("reason", reason, list(get_args(TruncationReason)))
        try:
            return self._end(state, ToolResult(f"The episode ended: {reason} limit."), reason)
        except FailedError as failure:
            return self._fail(state, failure)

    def grade(self) -> Verdict:
        """What a submission would be worth now. Works on a fork; the live sandbox is not touched.

        Raises ``SandboxError`` or whatever the grader raises; a verdict with ``error`` set is unscored.
        """
        task = self._current("grade").task
        return self._world.grade(task, self._world.submission(self.box, task))

    def privileged(self) -> dict[str, Any]:
        """What a critic may see and the agent may not, as ``forkgym.envs.privileged.describe`` documents it.

        Raises as ``grade`` does, and ``GradingError`` if the state cannot be judged.
        """
        task = self._current("privileged").task
        submission: Submission = self._world.submission(self.box, task)
        verdict = self._world.judge(task, submission)
        if verdict.score is None:
            raise GradingError(f"the grader gave no score: {verdict.error}")
        return describe(task, submission, verdict)

    def fork(self, n: int = 1) -> list[CodingEnv]:
        """``n`` independent copies of the running episode: sandbox, turn, budgets used, generator, tools' state.

        Copies files and shell state, not running processes. The copies are closed separately.
        """
        state = self._running("fork")
        origin = (self.box.id, state.turn)
        return [self._branch(box, origin) for box in self.box.fork(n)]

    def snapshot(self, label: str = "") -> str:
        """Save the running episode. ``restore`` with the returned id brings it back, until this environment closes."""
        state = self._running("snapshot")
        snapshot = self.box.snapshot(label).id
        self._holdings.snapshots.append(snapshot)
        self._saved[snapshot] = (state.copy(), copy.deepcopy(self._np_random))
        return snapshot

    def restore(self, snapshot: str) -> None:
        """Go back to a snapshot that this environment or one of its forks took. The present sandbox is removed."""
        if snapshot not in self._saved:
            raise SnapshotError(f"no snapshot {snapshot!r} of this episode; it has {', '.join(self._saved) or 'none'}")
        state, generator = self._saved[snapshot]
        box = self._world.restore(state.task, snapshot)
        self._holdings.close_box()
        self._holdings.box = box
        self._state = state.copy()
        self._np_random = copy.deepcopy(generator)
        self._episodes = state.episode

    def discard(self, snapshot: str) -> None:
        """Remove a snapshot before this environment is closed. One that is gone already is no error."""
        self._saved.pop(snapshot, None)
        self._world.forget(snapshot)

    # ---- inside

    def _own(self, box: Sandbox | None) -> None:
        """Take charge of a sandbox: it goes when this object is closed, collected, or the interpreter ends."""
        self._holdings = Holdings(self._world, box)
        weakref.finalize(self, self._holdings.close)

    def _branch(self, box: Sandbox, origin: tuple[str, int]) -> CodingEnv:
        child = copy.copy(self)
        child._own(box)
        assert self._state is not None
        child._state = self._state.copy()
        child._state.lineage = (*self._state.lineage, origin)
        child._np_random = copy.deepcopy(self._np_random)
        child.action_space = copy.deepcopy(self.action_space)
        child.observation_space = copy.deepcopy(self.observation_space)
        return child

    def _current(self, what: str) -> EpisodeState:
        if self._state is None:
            raise EpisodeOverError(f"{what}: no episode was started; call reset() first")
        return self._state

    def _running(self, what: str) -> EpisodeState:
        state = self._current(what)
        if state.outcome is not None:
            raise EpisodeOverError(f"{what}: the episode is over ({state.outcome.status}); call reset() first")
        return state

    def _prepare(self, task: Task) -> None:
        """A sandbox and a state for a new episode; a failed sandbox is thrown away and replaced."""
        failures: list[FailedError] = []
        while len(failures) < RESET_TRIES and not (failures and is_permanent(failures[-1])):
            try:
                with blame("sandbox"):
                    self._holdings.box = self._world.prepare(task)
                self._state = EpisodeState(
                    task=task,
                    seed=self.np_random_seed,
                    episode=self._episodes,
                    budget=checks.override(task.budget, *self._overrides),
                    tools={tool.name: tool.fork() for tool in self._tools},
                )
                if self._mode != "final":
                    self._shaped(self._state)
                return
            except FailedError as failure:
                failures.append(failure)
                self._state = None
                self._holdings.close_box()
        why = "; ".join(dict.fromkeys(map(str, failures)))
        tries = f"{len(failures)} tries" if len(failures) > 1 else "1 try"
        raise ResetError(f"task {task.id!r}: no sandbox got ready in {tries}: {why}") from failures[-1]

    def _act(self, state: EpisodeState, action: Mapping[str, Any] | Malformed) -> ToolResult:
        if isinstance(action, Malformed):
            return ToolResult(action.message, error=True)
        assert isinstance(self.action_space, ToolCalls)
        call = self.action_space.typed(action)
        if wrong := self.action_space.problem(call):
            return ToolResult(f"Not a valid action: {wrong}", error=True)
        tool = state.tools[call["tool"]]
        result = tool.run(self.box, state.task, call["arguments"], limit=state.seconds_left)
        state.calls.append(Call(call["tool"], call["arguments"], result.text))
        return result

    def _shaped(self, state: EpisodeState) -> float:
        """The reward of a step that does not end the episode, and the new baseline.

        delta: r(s') - r(s). potential: P(s') - P(s), where P is the share of hidden tests that pass; it is 0 after the
        end, so optimal policies stay the same (Ng, Harada & Russell 1999; undiscounted, episodic).
        """
        with blame("grader"):
            submission = self._world.submission(self.box, state.task)
            evidence = self._evidence(state, submission, self._world.judge)
            now, _ = rewards.apply(self._reward if self._mode == "delta" else rewards.tests, evidence)
        gain, state.baseline = now - state.baseline, now
        return gain

    def _evidence(
        self, state: EpisodeState, submission: Submission, judge: Callable[[Task, Submission], Verdict]
    ) -> Evidence:
        """What a reward may look at in the present state, judged by ``judge``."""
        return Evidence(judge(state.task, submission), state.task, submission, tuple(state.calls))

    def _end(self, state: EpisodeState, result: ToolResult, limit: TruncationReason | None) -> StepResult:
        """Grade what is there. ``limit`` is ``None`` if the agent submitted."""
        state.ending = ("finished", "submitted") if limit is None else ("truncated", limit)
        with blame("grader"):
            state.submission = self._world.submission(self.box, state.task)
            evidence = self._evidence(state, state.submission, self._world.grade)
            value, parts = rewards.apply(self._reward, evidence)
        state.outcome = Outcome(
            *state.ending,
            verdict=evidence.verdict,
            reward=value,
            reward_parts=parts,
            submission=state.submission,
        )
        return self._respond(result, value - state.baseline)

    def _fail(self, state: EpisodeState, failure: FailedError) -> StepResult:
        """The episode is lost to infrastructure: it ends, unscored."""
        detail, lost = str(failure), state.submission
        state.outcome = Outcome("failed", failure.kind, detail, submission=lost, ending=state.ending)
        self._holdings.close_box()
        return self._respond(ToolResult(f"{LOST} ({failure.kind}); this episode is not scored."), 0.0)

    def _respond(self, result: ToolResult, reward: float) -> StepResult:
        text = cap(valid(result.text), self._cap)
        self._record("observation", text)
        status = None if self.outcome is None else self.outcome.status
        return (
            {"text": text},
            reward,
            status == "finished",
            status in ("truncated", "failed"),
            self._current("info").info(result.error),
        )

    def _record(self, kind: str, what: object) -> None:
        text = what if isinstance(what, str) else written(what)
        self._current("record").transcript.append((kind, text))
        if self.render_mode == "human":
            sys.stdout.write(line(kind, text) + "\n")
