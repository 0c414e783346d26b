"""Direct preference optimisation (arXiv 2305.18290) on pairs of logged multi-turn episodes.

python -m forkgym.trainers.offline.dpo --recipe dpo-tiny data.runs=[runs/grpo-tiny]
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

try:
    import torch
except ModuleNotFoundError as error:
    from forkgym.trainers.command import without

    without(error, __name__)

import torch.nn.functional as F
from torch import Tensor

from forkgym.trainers.base import Batch
from forkgym.trainers.batch import build_batch
from forkgym.trainers.command import command
from forkgym.trainers.events import OnEvent
from forkgym.trainers.metrics import update_metrics
from forkgym.trainers.models import swapped_in
from forkgym.trainers.objectives import require_finite
from forkgym.trainers.offline.data import Pair, logged_episodes, preference_pairs
from forkgym.trainers.offline.fit import Start, fit
from forkgym.trainers.recipe import DpoRecipe
from forkgym.trainers.recipe_file import load_dpo
from forkgym.trainers.run_folder import Result
from forkgym.trainers.update import supervised_update


def run(recipe: DpoRecipe, *, resume: bool = False, on_event: OnEvent | None = None) -> Result:
    """Train by ``recipe``; see ``forkgym.trainers.offline.fit.fit`` for what is raised."""

    def prepare(start: Start) -> _Lesson:
        episodes = logged_episodes(recipe.data.runs, start.language.tokenizer, recipe.data.truncated)
        return _Lesson(recipe, start, preference_pairs(episodes, recipe.pairs, recipe.seed))

    return fit(recipe, prepare, recipe.pairs_per_step, keep_reference=True, resume=resume, on_event=on_event)


def preference(policy: Tensor, reference: Tensor, beta: float) -> tuple[Tensor, Tensor]:
    """The loss of each pair, and its margin ``beta * (log-ratio of the chosen - that of the rejected)``; both [P].

    ``policy`` and ``reference`` [2 P] are log-probabilities of whole episodes: the chosen of pair p at 2 p, the
    rejected at 2 p + 1.
    """
    gap = (policy - reference).reshape(-1, 2)
    margin = beta * (gap[:, 0] - gap[:, 1])
    return -F.logsigmoid(margin), margin


class _Lesson:
    def __init__(self, recipe: DpoRecipe, start: Start, pairs: list[Pair]) -> None:
        self._recipe, self._start = recipe, start
        self._pairs = {pair.key: pair for pair in pairs}

    @property
    def units(self) -> Sequence[str]:
        return list(self._pairs)

    def learn(self, units: Sequence[str]) -> dict[str, float]:
        """One update. The loss joins two episodes, but its gradient is a weighted sum of those of their tokens: the
        weights come from a first pass without gradient, so any cut into micro-batches gives the same update."""
        start, beta = self._start, self._recipe.pairs.beta
        episodes = [e for unit in units for e in (self._pairs[unit].chosen, self._pairs[unit].rejected)]
        batch = build_batch(episodes)
        policy = self._sums(batch, "log-probability")
        with swapped_in(start.language.model, start.reference):
            reference = self._sums(batch, "log-probability by the starting model")
        loss, margin = preference(policy, reference, beta)
        pull = beta * torch.sigmoid(-margin) / len(units)
        by_member = torch.stack([pull, -pull], 1).reshape(-1).float()
        weights = torch.where(batch.mask, by_member[batch.member][:, None], 0.0)
        norm = self._recipe.optimizer.max_grad_norm
        update = supervised_update(start.scorer, start.optimizer, batch, norm, weights)
        moved = (policy - reference).reshape(-1, 2).mean(0)
        return {
            **update_metrics([update]),
            "loss": loss.mean().item(),
            "accuracy": (margin > 0).double().mean().item(),
            "margin": margin.mean().item(),
            "log_ratio/chosen": moved[0].item(),
            "log_ratio/rejected": moved[1].item(),
        }

    def _sums(self, batch: Batch, what: str) -> Tensor:
        """The log-probability of each episode's sampled tokens, over all its segments: float64 [M]."""
        logp = self._start.scorer.whole(batch)
        require_finite(logp[batch.mask], batch.member.repeat_interleave(batch.mask.sum(1)), batch.episodes, what)
        sums = torch.zeros(batch.reward.shape, dtype=torch.float64)
        return sums.index_add_(0, batch.member, logp.double().sum(1))


def main() -> None:
    """The command line of this module."""
    sys.exit(command(__doc__ or "", load_dpo, run))


if __name__ == "__main__":
    main()
