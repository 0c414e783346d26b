"""Advantage-weighted regression (arXiv 1910.00177) and reward-weighted regression on logged episodes.

python -m forkgym.trainers.offline.regression --recipe awr-tiny data.runs=[runs/grpo-tiny] weight.kind=reward
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

try:
    import torch
except ModuleNotFoundError as error:
    from forkgym.trainers.command import without

    without(error, __name__)

from torch import Tensor

from forkgym.agents.base import Episode
from forkgym.trainers.advantages import group_advantage
from forkgym.trainers.batch import build_batch
from forkgym.trainers.command import command
from forkgym.trainers.events import OnEvent
from forkgym.trainers.metrics import update_metrics
from forkgym.trainers.objectives import token_weights
from forkgym.trainers.offline.data import logged_episodes
from forkgym.trainers.offline.fit import Start, fit
from forkgym.trainers.offline.sections import WeightSection
from forkgym.trainers.recipe import AwrRecipe
from forkgym.trainers.recipe_file import load_awr
from forkgym.trainers.run_folder import Result
from forkgym.trainers.update import supervised_update


def run(recipe: AwrRecipe, *, resume: bool = False, on_event: OnEvent | None = None) -> Result:
    """Train by ``recipe``; see ``forkgym.trainers.offline.fit.fit`` for what is raised."""

    def prepare(start: Start) -> _Lesson:
        episodes = logged_episodes(recipe.data.runs, start.language.tokenizer, recipe.data.truncated)
        return _Lesson(recipe, start, episodes)

    return fit(recipe, prepare, recipe.episodes_per_step, resume=resume, on_event=on_event)


def regression_weights(episodes: Sequence[Episode], section: WeightSection) -> Tensor:
    """The weight of each scored episode, float64 [M]; a baseline is that of all ``episodes`` of its group."""
    reward = torch.tensor([episode.reward for episode in episodes], dtype=torch.float64)
    labels = {label: number for number, label in enumerate(dict.fromkeys(e.group for e in episodes))}
    group = torch.tensor([labels[e.group] for e in episodes], dtype=torch.int64)
    baseline = "zero" if section.kind == "reward" else section.baseline or "mean"
    advantage = group_advantage(reward, group, baseline=baseline, std="none", eps=0.0, tolerance=0.0)
    return (advantage / section.beta).exp().clamp(max=section.max)


class _Lesson:
    def __init__(self, recipe: AwrRecipe, start: Start, episodes: list[Episode]) -> None:
        self._recipe, self._start = recipe, start
        self._episodes = {episode.id: episode for episode in episodes}
        weights = regression_weights(episodes, recipe.weight)
        self._weights = {unit: float(weight) for unit, weight in zip(self._episodes, weights, strict=True)}

    @property
    def units(self) -> Sequence[str]:
        return list(self._episodes)

    def learn(self, units: Sequence[str]) -> dict[str, float]:
        """One update on the weighted negative log-probability of these episodes' sampled tokens."""
        batch = build_batch([self._episodes[unit] for unit in units])
        each = torch.tensor([self._weights[unit] for unit in units])
        weights = token_weights(batch.mask, batch.member, "token_mean") * each[batch.member][:, None]
        norm = self._recipe.optimizer.max_grad_norm
        update = supervised_update(self._start.scorer, self._start.optimizer, batch, norm, weights)
        return {
            **update_metrics([update]),
            "reward": batch.reward.mean().item(),
            "weight/mean": each.mean().item(),
            "weight/max": each.max().item(),
            "weight/ess": (each.sum() ** 2 / (each.square().sum() * len(units))).item(),
        }


def main() -> None:
    """The command line of this module."""
    sys.exit(command(__doc__ or "", load_awr, run))


if __name__ == "__main__":
    main()
