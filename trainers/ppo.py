"""Multi-turn PPO with an asymmetric critic; ``loop.py`` has the steps that it shares with GRPO.

python -m forkgym.trainers.ppo --recipe ppo-tiny critic.inputs='[fraction, gold_distance]' out=runs/mine
python -m forkgym.trainers.ppo --recipe ppo-tiny --resume
"""

from __future__ import annotations

import sys
from collections.abc import Callable

try:
    import torch
except ModuleNotFoundError as error:
    from forkgym.trainers.command import without

    without(error, __name__)

from torch import Tensor

from forkgym.agents.base import Episode
from forkgym.agents.models import LanguageModel
from forkgym.trainers.advantages import whiten
from forkgym.trainers.base import Batch
from forkgym.trainers.checkpoint import Part, TrainState
from forkgym.trainers.command import command
from forkgym.trainers.critic import Critic, critic_update, explained_variance, make_critic, privileged_inputs, states
from forkgym.trainers.events import OnEvent
from forkgym.trainers.loop import Learner, Loop, train
from forkgym.trainers.metrics import update_metrics
from forkgym.trainers.player import Player
from forkgym.trainers.recipe import PpoRecipe
from forkgym.trainers.recipe_file import load_ppo
from forkgym.trainers.run_folder import Result, RunFolder
from forkgym.trainers.sequences import Sequences, estimate, rewards
from forkgym.trainers.update import make_optimizer, set_learning_rate


def run(
    recipe: PpoRecipe,
    *,
    resume: bool = False,
    on_event: OnEvent | None = None,
    player: Callable[[LanguageModel], Player] | None = None,
) -> Result:
    """Train by ``recipe``; see ``forkgym.trainers.grpo.run``."""

    def make(learner: Learner, folder: RunFolder, state: TrainState, play: Player, emit: OnEvent) -> Loop:
        return _Loop(recipe, folder, learner, state, play, emit)

    def parts(language: LanguageModel) -> dict[str, Part]:
        critic = make_critic(language, recipe.critic, recipe.seed)
        return {"critic": Part(critic, make_optimizer(critic, recipe.critic.optimizer))}

    return train(recipe, make, parts, resume=resume, on_event=on_event, player=player)


class _Loop(Loop):
    recipe: PpoRecipe

    def __init__(
        self,
        recipe: PpoRecipe,
        folder: RunFolder,
        learner: Learner,
        state: TrainState,
        player: Player,
        emit: OnEvent,
    ) -> None:
        self.truncated = "drop" if recipe.gae.truncated == "drop" else "score"
        self.critic: Critic = learner.parts["critic"].module
        super().__init__(recipe, folder, learner, state, player, emit)

    def _learn(self, step: int, batch: Batch, episodes: list[Episode]) -> dict[str, float]:
        recipe = self.recipe
        if not bool(batch.mask.any()):
            return update_metrics([])
        trunk = self.learner.model.base_model if self.critic.trunk is None else self.critic.trunk
        inputs = privileged_inputs(batch, episodes, recipe.critic.inputs)
        sequences = Sequences.of(batch)
        ends = _last_rows(batch) if recipe.gae.truncated == "bootstrap" else None
        hidden, after = states(trunk, batch, self.scorer.dtype, self.scorer.micro_batch_tokens, ends)
        with torch.no_grad():
            value = self.critic(hidden, inputs)[0]
            final = self._final_values(batch, sequences, inputs, after, ends)
        reward = rewards(sequences, batch, episodes, recipe.gae.rewards)
        found = estimate(sequences, reward, value, recipe.gae, final)
        batch.advantage[batch.mask] = found.advantage
        if recipe.gae.whiten:
            batch.advantage = whiten(batch.advantage, batch.mask)
        metrics = {
            "critic/value": value[found.valued].mean().item(),
            "critic/target": found.target[found.valued].mean().item(),
            "critic/explained_variance": explained_variance(found.target[found.valued], value[found.valued]),
        }
        critic = self.learner.parts["critic"]
        set_learning_rate(critic.optimizer, recipe.critic.optimizer, step, recipe.steps)
        for _ in range(recipe.critic.updates):
            done = critic_update(
                self.critic,
                critic.optimizer,
                batch,
                None if self.critic.trunk is not None else hidden,
                inputs,
                value,
                found,
                recipe.critic,
                self.scorer,
            )
            metrics |= {"critic/loss": done.loss, "critic/grad_norm": done.grad_norm}
        updates = [] if step <= recipe.critic.warmup_steps else self._update(step, batch)
        return {**metrics, **update_metrics(updates)}

    def _final_values(
        self, batch: Batch, sequences: Sequences, inputs: Tensor, after: Tensor, ends: Tensor | None
    ) -> Tensor | None:
        """Values [M] of where cut-off episodes stopped, with what was privileged as their last turn began."""
        if ends is None:
            return None
        result = torch.zeros(batch.reward.numel())
        members = batch.member[ends]
        last = sequences.present.sum(1)[members] - 1
        known = inputs[sequences.order[members, last]]
        result[members] = torch.where(batch.truncated[members], self.critic(after, known)[0], 0.0)
        return result


def _last_rows(batch: Batch) -> Tensor:
    """The last row of each episode."""
    rows = torch.full_like(batch.reward, -1, dtype=torch.int64)
    rows[batch.member] = torch.arange(batch.member.numel())  # a later row of an episode replaces an earlier one
    return rows[rows >= 0]


def main() -> None:
    """The command line of this module."""
    sys.exit(command(__doc__ or "", load_ppo, run))


if __name__ == "__main__":
    main()
