"""Sections of recipes that learn from logged episodes. This module imports no torch."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from forkgym.trainers.kinds import TruncatedRule
from forkgym.trainers.sections import Count, NotNegative, Positive, Section


class LoggedSection(Section):
    """Logged episodes: what runs, evaluations or collections left on disk."""

    runs: Annotated[tuple[str, ...], Field(strict=False, min_length=1)]
    """Run folders (their training episodes), folders with an ``episodes.jsonl``, or files of episodes."""
    truncated: TruncatedRule = "score"
    """Episodes cut off by a limit count with their reward, or are left out."""


class PairSection(Section):
    """Which pairs of episodes are compared, and how strongly."""

    beta: Positive = 0.1
    """How far the policy may move from the starting model: smaller is further."""
    within: Literal["group", "task"] = "group"
    """Pairs are made within one group of one run, or over all episodes of a task; both have the same prompt."""
    margin: NotNegative = 0.0
    """The chosen episode's reward exceeds the other's by more than this."""
    per_group: Count = 4
    """At most this many pairs of one group or task, drawn by the seed."""


class WeightSection(Section):
    """How much an episode counts by its reward."""

    kind: Literal["advantage", "reward"] = "advantage"
    """``exp(A / beta)``, A being the reward minus its group's baseline (AWR), or ``exp(reward / beta)`` (RWR)."""
    baseline: Literal["mean", "loo"] | None = None
    """Of ``advantage``: the mean of the group (default), or of its other members."""
    beta: Positive = 1.0
    max: Positive = 20.0
    """No weight is larger."""

    @model_validator(mode="after")
    def _check(self) -> WeightSection:
        if self.kind == "reward" and self.baseline is not None:
            raise ValueError("weight.baseline belongs to weight.kind advantage; remove it")
        return self
