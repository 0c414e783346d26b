"""On-policy distillation (arXiv 2306.13649): the student plays, teachers judge each token that it sampled.

python -m forkgym.trainers.offline.distill --recipe distill-tiny
python -m forkgym.trainers.offline.distill --recipe self-distill-tiny model.start_from=runs/sft-tiny
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
from forkgym.agents.registry import make_format
from forkgym.trainers.base import Batch
from forkgym.trainers.checkpoint import Part, TrainState
from forkgym.trainers.command import command
from forkgym.trainers.events import OnEvent
from forkgym.trainers.loop import Learner, Loop, train
from forkgym.trainers.metrics import update_metrics
from forkgym.trainers.offline.teachers import Faculty, Hindsight, Judge, frozen_copy, load_teachers
from forkgym.trainers.player import Player
from forkgym.trainers.recipe import DistillRecipe, SelfDistillRecipe
from forkgym.trainers.recipe_file import load_distill
from forkgym.trainers.run_folder import Result, RunFolder
from forkgym.trainers.update import make_optimizer


def run(
    recipe: DistillRecipe | SelfDistillRecipe,
    *,
    resume: bool = False,
    on_event: OnEvent | None = None,
    player: Callable[[LanguageModel], Player] | None = None,
) -> Result:
    """Train by ``recipe``; see ``forkgym.trainers.grpo.run``. Raises ``ConfigError`` for a teacher of another
    tokenizer before any episode is played."""
    judges: list[Judge] = []

    def parts(language: LanguageModel) -> dict[str, Part]:
        if isinstance(recipe, DistillRecipe):
            judges.append(load_teachers(recipe.teachers, language))
            return {}
        format = make_format(recipe.agent.format, language.tokenizer)
        hindsight = Hindsight(recipe.teacher, format, frozen_copy(language.model))
        judges.append(hindsight)
        if recipe.teacher.weights == "start":
            return {}
        for mine, trained in zip(hindsight.model.parameters(), language.model.parameters(), strict=True):
            mine.requires_grad_(trained.requires_grad)  # a checkpoint keeps what is trained
        return {"teacher": Part(hindsight.model, make_optimizer(hindsight.model, recipe.optimizer))}

    def make(learner: Learner, folder: RunFolder, state: TrainState, play: Player, emit: OnEvent) -> Loop:
        [judge] = judges
        if isinstance(judge, Faculty):
            judge.check(play.tasks("train"))
        return _Loop(recipe, folder, learner, state, play, emit, judge)

    return train(recipe, make, parts, resume=resume, on_event=on_event, player=player)


class _Loop(Loop):
    def __init__(
        self,
        recipe: DistillRecipe | SelfDistillRecipe,
        folder: RunFolder,
        learner: Learner,
        state: TrainState,
        player: Player,
        emit: OnEvent,
        judge: Judge,
    ) -> None:
        super().__init__(recipe, folder, learner, state, player, emit)
        self._judge = judge

    def _learn(self, step: int, batch: Batch, episodes: list[Episode]) -> dict[str, float]:
        """A token's advantage is minus its reverse KL: the expected gradient is that of KL(pi || teacher) at the
        positions which the student visited."""
        if not bool(batch.mask.any()):
            return update_metrics([])
        teacher = self._judge.judge(batch, episodes, self.scorer)
        batch.advantage = torch.where(batch.mask, teacher - self.scorer.whole(batch), 0.0)
        divergence = -batch.advantage[batch.mask].mean().item()
        metrics = update_metrics(self._update(step, batch))
        self._judge.learned(self.learner.model)
        return {"reverse_kl": divergence, **metrics}


def main() -> None:
    """The command line of this module."""
    sys.exit(command(__doc__ or "", load_distill, run))


if __name__ == "__main__":
    main()
