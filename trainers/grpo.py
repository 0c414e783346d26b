"""Multi-turn GRPO and its relatives (Dr. GRPO, RLOO, DAPO style); ``loop.py`` has the steps that they share with PPO.

python -m forkgym.trainers.grpo --recipe grpo-tiny optimizer.lr=1e-5 out=runs/mine
python -m forkgym.trainers.grpo --recipe grpo-tiny --resume
"""

from __future__ import annotations

import sys
from collections.abc import Callable

try:
    import torch
except ModuleNotFoundError as error:
    from forkgym.trainers.command import without

    without(error, __name__)

from forkgym.agents.base import Episode
from forkgym.agents.models import LanguageModel
from forkgym.trainers.advantages import (
    calibrated_advantage,
    component_advantage,
    gpg_advantage,
    group_advantage,
    overlong_penalty,
    pass_at_k_advantage,
    tournament_advantage,
    whiten,
)
from forkgym.trainers.base import Batch
from forkgym.trainers.batch import group_of_members, spread_to_tokens, tokens_of_members
from forkgym.trainers.checkpoint import TrainState
from forkgym.trainers.command import command
from forkgym.trainers.events import OnEvent
from forkgym.trainers.loop import Learner, Loop, train
from forkgym.trainers.metrics import update_metrics
from forkgym.trainers.player import Player
from forkgym.trainers.recipe import GrpoRecipe
from forkgym.trainers.recipe_file import load_grpo
from forkgym.trainers.run_folder import Result, RunFolder
from forkgym.trainers.turns import anchored


def run(
    recipe: GrpoRecipe,
    *,
    resume: bool = False,
    on_event: OnEvent | None = None,
    player: Callable[[LanguageModel], Player] | None = None,
) -> Result:
    """Train by ``recipe``. ``on_event`` is called in this thread; ``player`` replaces the recipe's environments.

    Raises ``ConfigError`` before anything is started, ``FailureBudgetError`` if too many episodes fail,
    ``InterruptedTraining`` after Ctrl-C; in the last two cases the last finished step is saved.
    """

    def make(learner: Learner, folder: RunFolder, state: TrainState, play: Player, emit: OnEvent) -> Loop:
        return _Loop(recipe, folder, learner, state, play, emit)

    return train(recipe, make, lambda _: {}, resume=resume, on_event=on_event, player=player)


class _Loop(Loop):
    recipe: GrpoRecipe

    def __init__(
        self,
        recipe: GrpoRecipe,
        folder: RunFolder,
        learner: Learner,
        state: TrainState,
        player: Player,
        emit: OnEvent,
    ) -> None:
        self.truncated, self.tolerance = recipe.advantage.truncated, recipe.advantage.tolerance
        self.only_loud, self.rounds = recipe.advantage.estimator == "dapo", recipe.advantage.max_rounds
        super().__init__(recipe, folder, learner, state, player, emit)

    def _learn(self, step: int, batch: Batch, episodes: list[Episode]) -> dict[str, float]:
        shaped = self._shape(batch)
        batch.advantage = self._advantages(batch, episodes)
        return {**update_metrics(self._update(step, batch)), **shaped}

    def _shape(self, batch: Batch) -> dict[str, float]:
        """Take the penalty on long episodes from the rewards; what it came to on average."""
        section = self.recipe.overlong
        if section.limit is None or not batch.reward.numel():
            return {}
        lost = overlong_penalty(
            tokens_of_members(batch), limit=section.limit, margin=section.width, penalty=section.penalty
        )
        batch.reward = batch.reward - lost
        return {"overlong_penalty": float(lost.mean())}

    def _advantages(self, batch: Batch, episodes: list[Episode]) -> torch.Tensor:
        """Advantage of each trained token, float32 [B, T]."""
        section, group = self.recipe.advantage, group_of_members(batch)
        if section.estimator == "gpg":
            each = gpg_advantage(batch.reward, group, tolerance=section.tolerance)
        elif section.estimator == "gdpo":
            weights = self.recipe.reward.weights or {}
            parts = [[episode.metrics[f"reward/{name}"] for name in weights] for episode in episodes]
            each = component_advantage(
                torch.tensor(parts, dtype=torch.float64).reshape(len(episodes), len(weights)),
                torch.tensor(list(weights.values())),
                group,
                eps=section.eps,
                tolerance=section.tolerance,
            )
        elif section.estimator == "leap":
            each = tournament_advantage(batch.reward, group, tokens_of_members(batch), tolerance=section.tolerance)
        elif section.estimator == "river":
            each = calibrated_advantage(batch.reward, group, bound=section.credit, tolerance=section.tolerance)
        elif section.k is not None:
            each = pass_at_k_advantage(batch.reward, group, k=section.k, tolerance=section.tolerance)
        else:
            each = group_advantage(
                batch.reward,
                group,
                baseline=section.baseline,
                std=section.std_kind,
                eps=section.eps,
                tolerance=section.tolerance,
                length=tokens_of_members(batch),
            )
        spread = spread_to_tokens(batch, each)
        if section.estimator == "gigpo":
            spread += section.turn_weight * anchored(batch, episodes, section)
        return whiten(spread, batch.mask) if section.whitened else spread


def main() -> None:
    """The command line of this module."""
    sys.exit(command(__doc__ or "", load_grpo, run))


if __name__ == "__main__":
    main()
