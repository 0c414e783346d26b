"""What a training run tells those who watch it: small records passed to ``on_event`` in the calling thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from forkgym.agents.base import Episode


@dataclass(frozen=True)
class RunStarted:
    """``step`` steps are already done (0, or where a resumed run goes on). ``definition`` is the loss in words."""

    algorithm: str
    step: int
    steps: int
    out: Path
    definition: str


@dataclass(frozen=True)
class PhaseStarted:
    """``phase`` is rollout, train, eval or checkpoint. ``total`` counts its episodes, 0 where it plays none."""

    step: int
    phase: str
    total: int = 0


@dataclass(frozen=True)
class EpisodeEnded:
    """One attempt at an episode of the present phase ended; ``done`` attempts so far."""

    step: int
    episode: Episode
    done: int


@dataclass(frozen=True)
class StepEnded:
    """One step of training is complete."""

    step: int
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class Warned:
    """After ``step`` something looks wrong; the run goes on."""

    step: int
    message: str


@dataclass(frozen=True)
class EvalEnded:
    """Held-out results of the weights after ``step`` steps."""

    step: int
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class CheckpointSaved:
    """``path`` can be resumed from."""

    step: int
    path: Path


@dataclass(frozen=True)
class RunEnded:
    """``reason`` is done or time."""

    step: int
    reason: str
    checkpoint: Path


Event = RunStarted | PhaseStarted | EpisodeEnded | StepEnded | Warned | EvalEnded | CheckpointSaved | RunEnded
OnEvent = Callable[[Event], None]


def silence(event: Event) -> None:
    """The ``on_event`` of a run that nobody watches."""
