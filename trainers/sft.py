"""Supervised fine-tuning on demonstration episodes: only tokens marked as sampled are trained.

python -m forkgym.trainers.sft --recipe sft-tiny steps=40 out=runs/warm
python -m forkgym.trainers.grpo --recipe grpo-tiny model.start_from=runs/warm
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

try:
    import torch
except ModuleNotFoundError as error:
    from forkgym.trainers.command import without

    without(error, __name__)

from forkgym.agents.base import Episode, SamplingParams
from forkgym.agents.collect import Job
from forkgym.agents.loops.bash import BashAgent
from forkgym.agents.loops.oracle import DemonstrationAgent
from forkgym.agents.models import LanguageModel, compute_dtype
from forkgym.agents.records import EpisodeWriter, read_episodes
from forkgym.agents.registry import make_agent, make_format
from forkgym.errors import ConfigError
from forkgym.trainers import checkpoint
from forkgym.trainers.batch import build_batch, keep_trainable
from forkgym.trainers.checkpoint import TrainState
from forkgym.trainers.command import command
from forkgym.trainers.describe import resolved
from forkgym.trainers.errors import InterruptedTraining
from forkgym.trainers.events import (
    CheckpointSaved,
    EpisodeEnded,
    OnEvent,
    PhaseStarted,
    RunEnded,
    RunStarted,
    StepEnded,
    silence,
)
from forkgym.trainers.interrupt import stop_on_signal
from forkgym.trainers.metrics import Clock, update_metrics
from forkgym.trainers.models import load_model
from forkgym.trainers.plan import TaskOrder, seed_of
from forkgym.trainers.player import EnvPlayer
from forkgym.trainers.recipe import SftRecipe
from forkgym.trainers.recipe_file import load_sft
from forkgym.trainers.run_folder import Result, RunFolder
from forkgym.trainers.update import Scorer, make_optimizer, set_learning_rate, supervised_update


def run(recipe: SftRecipe, *, resume: bool = False, on_event: OnEvent | None = None) -> Result:
    """Train by ``recipe``. ``on_event`` is called in this thread.

    Raises ``ConfigError`` before training begins, and ``InterruptedTraining`` after Ctrl-C, with the last finished step
    saved.
    """
    emit = on_event or silence
    with RunFolder(recipe, resume) as folder, stop_on_signal() as stop:
        language = load_model(recipe.model, recipe.seed)
        if recipe.model.start_from is not None:
            checkpoint.load_weights(checkpoint.find(Path(recipe.model.start_from)), language.model)
        optimizer = make_optimizer(language.model, recipe.optimizer)
        state = folder.restore(language.model, optimizer)
        episodes = demonstrations(recipe, language, folder.path, emit, stop)
        order = TaskOrder(list(episodes), recipe.seed)
        scorer = Scorer(language.model, compute_dtype(recipe.model.dtype), 1.0, recipe.batch.micro_batch_tokens)
        emit(RunStarted("sft", state.step, recipe.steps, folder.path, resolved(recipe)))

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
            metrics = _step(recipe, state, scorer, optimizer, order, episodes, emit)
            slowest = max(slowest, metrics["seconds/train"])
            folder.log.write("train", state.step, metrics)
            emit(StepEnded(state.step, metrics))


def _step(
    recipe: SftRecipe,
    state: TrainState,
    scorer: Scorer,
    optimizer: torch.optim.Optimizer,
    order: TaskOrder,
    episodes: dict[str, Episode],
    emit: OnEvent,
) -> dict[str, float]:
    """One update on the next demonstrations of the order; then the step counts."""
    step, clock = state.step + 1, Clock()
    emit(PhaseStarted(step, "train"))
    slots = order.slots(state.cursor, recipe.episodes_per_step)
    with clock.phase("train"):
        rate = set_learning_rate(optimizer, recipe.optimizer, step, recipe.steps)
        batch = build_batch([episodes[slot.task] for slot in slots])
        update = supervised_update(scorer, optimizer, batch, recipe.optimizer.max_grad_norm)
    state.step, state.cursor = step, state.cursor + len(slots)
    state.elapsed_s += clock.total
    state.ledger += [slot.key for slot in slots]
    return {"loss": update.loss, "lr": rate, **update_metrics([update]), "seconds/train": clock.total}


def demonstrations(
    recipe: SftRecipe, language: LanguageModel, folder: Path, emit: OnEvent, stop: threading.Event
) -> dict[str, Episode]:
    """Demonstrations by episode id: those of ``data.path``, or played in the training tasks and kept in ``folder``.

    Raises ``ConfigError`` if none is good enough or two have one id.
    """
    path = Path(recipe.data.path) if recipe.data.path else folder / "demonstrations.jsonl"
    if recipe.data.path is None and not path.exists():
        _play(recipe, language, path, emit, stop)
    least = recipe.data.min_reward
    found = [e for e in read_episodes(path).episodes if e.scored and (least is None or (e.reward or 0.0) >= least)]
    kept = {episode.id: episode for episode in keep_trainable(found).episodes}
    if len(kept) != len(found):
        raise ConfigError(f"{path} has demonstrations that share an id or hold no sampled tokens")
    if not kept:
        raise ConfigError(f"{path} has no demonstration with a reward of at least {least}")
    return kept


def _play(recipe: SftRecipe, language: LanguageModel, path: Path, emit: OnEvent, stop: threading.Event) -> None:
    """Write ``path`` whole or not at all."""
    agent = make_agent(
        {"name": recipe.agent.name, **recipe.agent.options},
        format=make_format(recipe.agent.format, language.tokenizer),
    )
    if not isinstance(agent, BashAgent):
        raise ConfigError(f"demonstrations are played through the agent 'bash'; {recipe.agent.name!r} is not one")
    player = EnvPlayer(
        recipe.env, DemonstrationAgent(agent, language.tokenizer), None, concurrency=recipe.data.concurrency
    )
    jobs = [
        Job(task, seed_of(recipe.seed, "demonstration", task, k), task, f"{task}#demonstration.{k}")
        for task in player.tasks("train")
        for k in range(recipe.data.episodes_per_task)
    ]
    scratch = path.with_name(f".writing-{path.name}")
    scratch.unlink(missing_ok=True)
    count = 0

    def tell(episode: Episode) -> None:
        nonlocal count
        count += 1
        emit(EpisodeEnded(0, episode, count))

    emit(PhaseStarted(0, "rollout", len(jobs)))
    collection = player.play("train", jobs, SamplingParams(), tell, stop)
    if stop.is_set():
        raise InterruptedTraining("stopped while demonstrations were played; nothing was trained yet")
    with EpisodeWriter(scratch) as writer:
        for episode in collection.episodes:
            writer.write(episode)
    scratch.rename(path)


def main() -> None:
    """The command line of this module."""
    sys.exit(command(__doc__ or "", load_sft, run))


if __name__ == "__main__":
    main()
