"""What a training run tells, drawn onto one phase of a live view."""

from __future__ import annotations

from collections.abc import Mapping

from forkgym.agents.base import Episode
from forkgym.cli.live import LiveView
from forkgym.cli.output import percent
from forkgym.trainers.events import (
    EpisodeEnded,
    EvalEnded,
    Event,
    PhaseStarted,
    RunEnded,
    RunStarted,
    StepEnded,
    Warned,
)

# Within a step, playing episodes takes about this share of the time; it only smooths the bar.
ROLLOUT_SHARE = 0.7
NAMES = {"rollout": "playing", "eval": "held-out", "train": "learning", "checkpoint": "saving"}


class TrainingView:
    """Feeds events of one run to the phase ``key`` of ``view``."""

    def __init__(self, view: LiveView, key: str) -> None:
        self._view = view
        self._key = key
        self._steps = 0
        self._step = 0
        self._phase = PhaseStarted(0, "rollout")
        self._curve: float | None = None
        self._learned = ""
        self._held_out = ""

    def __call__(self, event: Event) -> None:
        """Take one event."""
        if isinstance(event, RunStarted):
            self._step, self._steps = event.step, event.steps
            self._view.start(self._key, event.steps)
        elif isinstance(event, PhaseStarted):
            self._phase = event
            if not self._steps:  # played before the first step: demonstrations
                self._view.start(self._key, event.total)
            self._show(0)
        elif isinstance(event, EpisodeEnded):
            self._view.tell(sentence(event.episode))
            self._show(event.done)
        elif isinstance(event, StepEnded):
            self._step = event.step
            self._learned = _numbers(event.metrics)
            self._show(0, event.metrics.get("reward"))
        elif isinstance(event, Warned):
            self._view.tell(f"warning: {event.message}")
        elif isinstance(event, EvalEnded):
            self._held_out = f"held-out {percent(event.metrics.get('pass_rate'))}"
            self._show(0)
        elif isinstance(event, RunEnded):
            stopped = f"stopped by time at step {event.step} of {self._steps}" if event.reason == "time" else ""
            self._view.finish(self._key, _join(stopped, self._learned, self._held_out))

    def _show(self, done: int, point: float | None = None) -> None:
        phase = self._phase
        count = NAMES.get(phase.phase, phase.phase) + (f" {done}/{phase.total}" if phase.total else "")
        if not self._steps:
            self._view.update(self._key, done, count)
            return
        inside = 0.0
        if point is None and phase.phase == "train":
            inside = ROLLOUT_SHARE
        elif point is None and phase.phase == "rollout" and phase.total:
            inside = ROLLOUT_SHARE * done / phase.total
        step = f"step {min(self._step + 1, self._steps)}"
        self._view.update(self._key, self._step + inside, _join(step, count, self._learned, self._held_out), point)


def sentence(episode: Episode) -> str:
    """An episode in one line."""
    if not episode.scored:
        end = f"{episode.status} ({episode.reason})"
    elif (episode.verdict or {}).get("resolved"):
        end = "solved"
    else:
        end = "not solved"
    turns = f"{len(episode.steps)} turn{'' if len(episode.steps) == 1 else 's'}"
    return f"{episode.task} · {end} in {turns}"


def _numbers(metrics: Mapping[str, float]) -> str:
    reward = f"reward {metrics['reward']:.2f}" if "reward" in metrics else ""
    loss = f"loss {metrics['loss']:.3f}" if "loss" in metrics and not reward else ""
    return reward or loss


def _join(*parts: str) -> str:
    return " · ".join(part for part in parts if part)
