"""Sections of recipes that learn from logged episodes or from teachers. This module imports no torch."""

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


class TeacherSection(Section):
    """A model whose probabilities the student learns. It has the student's tokenizer."""

    model: str
    """``smollm2-135m``, ``tiny-random``, or the path of a directory in the format of transformers."""
    start_from: str | None = None
    """A checkpoint, or a run folder, whose weights replace the model's own."""
    tasks: str = "*"
    """Teaches in tasks whose id matches this pattern."""
    weight: Positive = 1.0
    """Against the other teachers of the same task."""


class SelfTeacherSection(Section):
    """The student itself as its teacher, which reads how the episode ended before it judges the tokens."""

    weights: Literal["start", "ema"] = "start"
    """The student's weights as the run began, or a moving average of them."""
    decay: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Of ``ema``: how much of the average stays in each step. Default 0.95."""
    template: str = "The attempt below ended with this verdict: {verdict}"
    """A message before the episode's own, for the teacher only. ``{verdict}`` is the episode's verdict as JSON."""
    max_chars: Count = 2000
    """Of the verdict."""

    @model_validator(mode="after")
    def _check(self) -> SelfTeacherSection:
        if "{verdict}" not in self.template:
            raise ValueError("teacher.template has no {verdict}: the teacher would know no more than the student")
        if self.decay is not None and self.weights != "ema":
            raise ValueError("teacher.decay belongs to teacher.weights ema; remove it")
        return self
