"""The steps of a run that learns from a fixed set of units, such as demonstrations or pairs of episodes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from forkgym.agents.models import LanguageModel, compute_dtype
from forkgym.errors import ConfigError
from forkgym.trainers import checkpoint
from forkgym.trainers.checkpoint import TrainState
from forkgym.trainers.describe import resolved
from forkgym.trainers.errors import InterruptedTraining
from forkgym.trainers.events import (
    CheckpointSaved,
    OnEvent,
    PhaseStarted,
    RunEnded,
    RunStarted,
    StepEnded,
    silence,
)
from forkgym.trainers.interrupt import stop_on_signal
from forkgym.trainers.metrics import Clock
from forkgym.trainers.models import load_model, trained_weights
from forkgym.trainers.plan import TaskOrder
from forkgym.trainers.recipe import AwrRecipe, DpoRecipe, SftRecipe
from forkgym.trainers.run_folder import Result, RunFolder
from forkgym.trainers.update import Scorer, make_optimizer, set_learning_rate

FitRecipe = SftRecipe | DpoRecipe | AwrRecipe


@dataclass(frozen=True)
class Start:
    """What a run begins with. ``reference`` holds copies of the weights as the run began, if they were asked for."""

    language: LanguageModel
    scorer: Scorer
    optimizer: torch.optim.Optimizer
    reference: Mapping[str, Tensor]
    folder: Path
    emit: OnEvent
    stop: threading.Event


class Lesson(Protocol):
    """What is learnt. ``units`` names each thing that a step may draw; none is left out within one pass."""

    @property
    def units(self) -> Sequence[str]: ...

    def learn(self, units: Sequence[str]) -> dict[str, float]:
        """Make one update on these units, and return its numbers."""
        ...


def fit(
    recipe: FitRecipe,
    prepare: Callable[[Start], Lesson],
    per_step: int,
    *,
    keep_reference: bool = False,
    resume: bool = False,
    on_event: OnEvent | None = None,
) -> Result:
    """Load the model, go on from a checkpoint or begin, and learn ``per_step`` units a step until the end.

    Raises ``ConfigError`` before training begins, and ``InterruptedTraining`` after Ctrl-C, with the last finished step
    saved.
    """
    emit = on_event or silence
    with RunFolder(recipe, resume) as folder, stop_on_signal() as stop:
        language = load_model(recipe.model, recipe.seed)
        if recipe.model.start_from is not None:
            checkpoint.load_weights(checkpoint.find(Path(recipe.model.start_from)), language.model)
        weights = trained_weights(language.model) if keep_reference else {}
        reference = {name: weight.clone() for name, weight in weights.items()}
        optimizer = make_optimizer(language.model, recipe.optimizer)
        state = folder.restore(language.model, optimizer)
        scorer = Scorer(language.model, compute_dtype(recipe.model.dtype), 1.0, recipe.batch.micro_batch_tokens)
        lesson = prepare(Start(language, scorer, optimizer, reference, folder.path, emit, stop))
        order = TaskOrder(lesson.units, recipe.seed)
        planned = [slot.key for slot in order.slots(state.cursor, per_step)]
        if state.in_flight and state.in_flight != planned:
            raise ConfigError(
                f"the checkpoint of step {state.step} would go on with {state.in_flight[0]!r}, but the data now give "
                f"{planned[0]!r}: they have changed. Restore them, or choose another 'out'"
            )
        state.in_flight = planned
        emit(RunStarted(recipe.algorithm, state.step, recipe.steps, folder.path, resolved(recipe)))

        metrics, slowest = dict[str, float](), 0.0
        while True:
            late = recipe.time_budget_s is not None and state.elapsed_s + slowest > recipe.time_budget_s
            last = late or state.step >= recipe.steps
            if last or stop.is_set() or state.step % recipe.checkpoint.every == 0:
                path = folder.save(state, language.model, optimizer)
                emit(CheckpointSaved(state.step, path))
                if last:
                    reason = "time" if state.step < recipe.steps else "done"
                    emit(RunEnded(state.step, reason, path))
                    return Result(state.step, reason, path, metrics)
                if stop.is_set():
                    raise InterruptedTraining(
                        f"stopped after step {state.step} of {recipe.steps}; {path} is whole: run again with --resume"
                    )
            metrics = _step(recipe, state, optimizer, order, per_step, lesson, emit)
            slowest = max(slowest, metrics["seconds/train"])
            folder.log.write("train", state.step, metrics)
            emit(StepEnded(state.step, metrics))


def _step(
    recipe: FitRecipe,
    state: TrainState,
    optimizer: Any,
    order: TaskOrder,
    per_step: int,
    lesson: Lesson,
    emit: OnEvent,
) -> dict[str, float]:
    """One update on the next units of the order; then the step counts."""
    step, clock = state.step + 1, Clock()
    emit(PhaseStarted(step, "train"))
    slots = order.slots(state.cursor, per_step)
    with clock.phase("train"):
        rate = set_learning_rate(optimizer, recipe.optimizer, step, recipe.steps)
        learned = lesson.learn([slot.task for slot in slots])
    state.step, state.cursor = step, state.cursor + len(slots)
    state.elapsed_s += clock.total
    state.ledger += [slot.key for slot in slots]
    state.in_flight = [slot.key for slot in order.slots(state.cursor, per_step)]
    return {"lr": rate, **learned, "seconds/train": clock.total}
