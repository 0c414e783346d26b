"""Counts and means over episodes that always add up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import get_args

from forkgym.agents.base import Episode, Status

STATUSES: tuple[str, ...] = get_args(Status)


@dataclass(frozen=True)
class Summary:
    """``status`` has every status and adds up to ``episodes``; so does ``reason`` (``failed(sandbox)`` and the like).

    ``stage`` counts the verdicts of scored episodes and adds up to ``scored``, an episode without one under ``none``.
    ``reward`` and ``resolved`` are means over scored episodes only, ``None`` without any; ``reward_std`` is the
    population standard deviation.
    """

    episodes: int
    scored: int
    status: Mapping[str, int]
    reason: Mapping[str, int]
    stage: Mapping[str, int]
    reward: float | None
    reward_std: float | None
    resolved: float | None
    means: Mapping[str, float] = field(default_factory=dict[str, float])

    @property
    def failed_share(self) -> float:
        """Failed episodes over all episodes, 0 without any."""
        return self.status["failed"] / self.episodes if self.episodes else 0.0


def summarize(episodes: Iterable[Episode]) -> Summary:
    """The summary of some episodes. ``means`` averages each metric over the episodes that have it."""
    rows = list(episodes)
    counts = Counter(e.status for e in rows)
    rewards = [e.reward for e in rows if e.reward is not None]
    verdicts = [e.verdict or {} for e in rows if e.reward is not None]
    mean = _mean(rewards)
    names = sorted({name for e in rows for name in e.metrics})
    return Summary(
        episodes=len(rows),
        scored=len(rewards),
        status={status: counts.get(status, 0) for status in STATUSES},  # pyright: ignore[reportArgumentType]
        reason=dict(Counter(f"{e.status}({e.reason})" for e in rows)),
        stage=dict(Counter(str(v.get("stage", "none")) for v in verdicts)),
        reward=mean,
        reward_std=None if mean is None else (sum((r - mean) ** 2 for r in rewards) / len(rewards)) ** 0.5,
        resolved=_mean([float(bool(v.get("resolved"))) for v in verdicts]),
        means={name: sum(v := [e.metrics[name] for e in rows if name in e.metrics]) / len(v) for name in names},
    )


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
