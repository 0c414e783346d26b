"""The state of one episode: everything about it that does not live in the sandbox."""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from forkgym.envs.base import Call, Tool, TruncationReason
from forkgym.tasks.base import Budget, Submission, Task, Verdict

Status = Literal["finished", "truncated", "failed"]


@dataclass(frozen=True)
class Outcome:
    """How an episode ended. ``reason`` is the limit or the failed part; ``reward`` is ``None`` unless it was scored.

    ``reward_parts`` are the values that a weighted reward was made of; ``submission`` is what was graded, or would have
    been, had the grader not failed; ``ending`` is then the end that it had come to, as (status, reason).
    """

    status: Status
    reason: str = ""
    detail: str = ""
    verdict: Verdict | None = None
    reward: float | None = None
    reward_parts: Mapping[str, float] = field(default_factory=dict[str, float])
    submission: Submission | None = None
    ending: tuple[Status, str] | None = None

    @property
    def scored(self) -> bool:
        """True if the reward may be trained on and averaged."""
        return self.reward is not None


@dataclass
class EpisodeState:
    """One episode. ``seconds`` keeps counting from where a fork or a snapshot was taken.

    ``trees`` are the digests of the changed files after each step, where the environment takes them.
    """

    task: Task
    seed: int
    episode: int
    budget: Budget
    tools: dict[str, Tool]
    turn: int = 0
    tokens: int = 0
    spent: float = 0.0
    started: float = field(default_factory=time.monotonic)
    baseline: float = 0.0
    transcript: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    calls: list[Call] = field(default_factory=list[Call])
    trees: list[str] = field(default_factory=list[str])
    submission: Submission | None = None
    ending: tuple[Status, str] | None = None
    lineage: tuple[tuple[str, int], ...] = ()
    outcome: Outcome | None = None

    @property
    def seconds(self) -> float:
        """Wall time used so far."""
        return self.spent + time.monotonic() - self.started

    @property
    def seconds_left(self) -> float:
        """What is left of the time budget; infinite without one."""
        return float("inf") if self.budget.seconds is None else max(0.0, self.budget.seconds - self.seconds)

    def left(self) -> Budget:
        """The budget that is not used up yet."""
        whole = self.budget
        return Budget(
            turns=None if whole.turns is None else max(0, whole.turns - self.turn),
            seconds=None if whole.seconds is None else self.seconds_left,
            tokens=None if whole.tokens is None else max(0, whole.tokens - self.tokens),
        )

    def exhausted(self) -> TruncationReason | None:
        """The first limit that is used up."""
        budget = self.budget
        if budget.turns is not None and self.turn >= budget.turns:
            return "turns"
        if budget.tokens is not None and self.tokens > budget.tokens:
            return "tokens"
        if budget.seconds is not None and self.seconds >= budget.seconds:
            return "time"
        return None

    def info(self, tool_error: bool = False) -> dict[str, Any]:
        """Gymnasium's info: new objects on every call, all plain values, none of them dependent on the clock."""
        end = self.outcome
        info: dict[str, Any] = {
            "task": self.task.id,
            "seed": self.seed,
            "episode_index": self.episode,
            "turn": self.turn,
            "tokens": self.tokens,
            "tool_error": tool_error,
            "truncated": end.reason if end is not None and end.status == "truncated" else None,
        }
        if end is not None:
            info["reward"] = end.reward
            if end.reward_parts:
                info["reward_parts"] = dict(end.reward_parts)
            if end.verdict is not None:
                info["verdict"] = _timeless(end.verdict)
            if end.status == "failed":
                info["failure"] = {"kind": end.reason, "reason": end.detail}
        return info

    def copy(self) -> EpisodeState:
        """An independent copy whose clock starts now, with the time used so far already spent."""
        return replace(
            self,
            tools={name: tool.fork() for name, tool in self.tools.items()},
            spent=self.seconds,
            started=time.monotonic(),
            transcript=copy.copy(self.transcript),
            calls=copy.copy(self.calls),
            trees=copy.copy(self.trees),
        )


def line(kind: str, text: str) -> str:
    """One entry of a transcript, as shown to people."""
    return f"> {text}" if kind == "action" else text


def _timeless(verdict: Verdict) -> dict[str, Any]:
    """A verdict without its timings, which differ from run to run; ``outcome.verdict`` has them."""
    plain = verdict.as_dict()
    plain["provenance"] = {key: value for key, value in plain["provenance"].items() if not key.endswith("seconds")}
    return plain
