"""``forkgym train``: run a recipe and watch it."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from forkgym.cli.live import LiveView
from forkgym.cli.output import err, out, print_json
from forkgym.cli.players import engine
from forkgym.cli.training import TrainingView
from forkgym.trainers.describe import resolved
from forkgym.trainers.events import Event, RunEnded
from forkgym.trainers.recipe import MODULES
from forkgym.trainers.recipe_file import load


def train(recipe: str, overrides: Sequence[str], *, resume: bool, as_json: bool) -> None:
    """Train by ``recipe``. Raises ``InterruptedTraining`` after Ctrl-C, when the last finished step is saved."""
    chosen = load(recipe, overrides)
    trainer = engine(MODULES.get(chosen.algorithm, chosen.algorithm))
    err.print(Text(resolved(chosen), "dim"), soft_wrap=True)
    ended: list[RunEnded] = []
    with LiveView(f"{chosen.algorithm} into {chosen.out}", [("train", "Training")], err) as view:
        show = TrainingView(view, "train")

        def watch(event: Event) -> None:
            show(event)
            if isinstance(event, RunEnded):
                ended.append(event)

        result = trainer.run(chosen, resume=resume, on_event=watch)
    if as_json:
        end = ended[-1]
        print_json(
            {
                "out": chosen.out,
                "step": end.step,
                "reason": end.reason,
                "checkpoint": str(end.checkpoint),
                "metrics": dict(result.metrics),
            }
        )
        return
    out.print(f"checkpoint: {ended[-1].checkpoint}", soft_wrap=True, markup=False)
    out.print(
        f"measure it: forkgym eval --agent bash --model {chosen.out} --tasks '{chosen.env.tasks}'", soft_wrap=True
    )
