"""Held-out pass rate with fixed tasks and seeds."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from forkgym.agents.base import Episode, SamplingParams
from forkgym.trainers.metrics import Clock, episode_metrics
from forkgym.trainers.plan import eval_jobs
from forkgym.trainers.player import Player
from forkgym.trainers.sections import EvalSection, SamplingSection


@dataclass(frozen=True)
class Evaluation:
    """``metrics`` as in ``forkgym.trainers.metrics.episode_metrics``, and the episodes in order of task."""

    metrics: dict[str, float]
    episodes: list[Episode]


def evaluate(
    player: Player,
    section: EvalSection,
    sampling: SamplingSection,
    *,
    seed: int,
    step: int,
    on_episode: Callable[[Episode], None],
    cancel: threading.Event,
) -> Evaluation:
    """Play every held-out task (the first ``max_tasks``) ``episodes_per_task`` times at ``temperature``.

    Failed episodes are left out of the rates and counted. If ``cancel`` is set meanwhile, the rest is cancelled.
    """
    tasks = sorted(player.tasks("eval"))[: section.max_tasks]
    clock, attempts = Clock(), list[Episode]()

    def keep(episode: Episode) -> None:
        attempts.append(episode)
        on_episode(episode)

    with clock.phase("eval"):
        played = player.play(
            "eval",
            eval_jobs(tasks, section.episodes_per_task, seed, step),
            SamplingParams(max_tokens=sampling.max_tokens, temperature=section.temperature),
            keep,
            cancel,
        )
    metrics = episode_metrics(played.episodes, attempts)
    metrics["seconds/eval"] = clock.total
    return Evaluation(metrics, played.episodes)
