"""Multi-turn GRPO and its relatives (Dr. GRPO, RLOO, DAPO style): the whole loop, read from top to bottom.

    python -m forkgym.trainers.grpo --recipe grpo-tiny optimizer.lr=1e-5 out=runs/mine
    python -m forkgym.trainers.grpo --recipe grpo-tiny --resume

A step is atomic: it plays its groups, makes its updates, and only then counts. What a killed run had not yet saved is
played again with the same tasks and seeds, so each (task visit, sample) is trained once.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

try:
    import torch
except ModuleNotFoundError as error:
    from forkgym.trainers.command import without

    without(error, __name__)

from forkgym.agents.base import Episode, SamplingParams
from forkgym.agents.models import LanguageModel, compute_dtype
from forkgym.agents.policies.hf import HFPolicy
from forkgym.agents.registry import make_agent, make_format
from forkgym.errors import ConfigError
from forkgym.trainers import checkpoint
from forkgym.trainers.advantages import component_advantage, group_advantage, has_signal, whiten
from forkgym.trainers.base import Batch
from forkgym.trainers.batch import (
    build_batch,
    group_of_members,
    keep_trainable,
    split_members,
    spread_to_tokens,
    tokens_of_members,
)
from forkgym.trainers.checkpoint import TrainState
from forkgym.trainers.command import command
from forkgym.trainers.describe import resolved
from forkgym.trainers.errors import InterruptedTraining, TrainerError
from forkgym.trainers.evaluate import evaluate
from forkgym.trainers.events import (
    CheckpointSaved,
    EpisodeEnded,
    EvalEnded,
    OnEvent,
    PhaseStarted,
    RunEnded,
    RunStarted,
    StepEnded,
    silence,
)
from forkgym.trainers.interrupt import stop_on_signal
from forkgym.trainers.metrics import Clock, episode_metrics, time_metrics, update_metrics
from forkgym.trainers.models import load_model, swapped_in, trained_weights
from forkgym.trainers.plan import TaskOrder, group_jobs
from forkgym.trainers.player import EnvPlayer, Player
from forkgym.trainers.recipe import GrpoRecipe
from forkgym.trainers.recipe_file import load_grpo
from forkgym.trainers.run_folder import Result, RunFolder
from forkgym.trainers.update import (
    Frozen,
    Scorer,
    Update,
    learning_rate,
    make_optimizer,
    policy_update,
    set_learning_rate,
)


@dataclass
class Gathered:
    """The episodes of one step. ``trained`` maps those to train on to their unit in the ledger."""

    trained: dict[str, Episode] = field(default_factory=dict[str, Episode])
    played: list[Episode] = field(default_factory=list[Episode])
    attempts: list[Episode] = field(default_factory=list[Episode])
    left_out: dict[str, int] = field(default_factory=dict[str, int])
    groups: int = 0
    silent: int = 0


def make_player(recipe: GrpoRecipe, language: LanguageModel, version: int = 0) -> EnvPlayer:
    """Episodes in the recipe's environments, sampled by the model itself, whose weights have this ``version``."""
    agent = make_agent(
        {"name": recipe.agent.name, **recipe.agent.options},
        format=make_format(recipe.agent.format, language.tokenizer),
    )
    policy = HFPolicy(
        language.model,
        dtype=compute_dtype(recipe.model.dtype),
        slots=recipe.rollout.concurrency,
        context=recipe.sampling.context,
        tokenizer=language.tokenizer,
        version=version,
    )
    return EnvPlayer(
        recipe.env,
        agent,
        policy,
        reward=recipe.reward.spec,
        concurrency=recipe.rollout.concurrency,
        retries=recipe.rollout.retries,
        max_failed_share=recipe.rollout.max_failed_share,
    )


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
    emit = on_event or silence
    with RunFolder(recipe, resume) as folder:
        language = load_model(recipe.model, recipe.seed)
        if recipe.model.start_from is not None:
            checkpoint.load_weights(checkpoint.find(Path(recipe.model.start_from)), language.model)
        reference = {name: w.clone() for name, w in trained_weights(language.model).items()}
        optimizer = make_optimizer(language.model, recipe.optimizer)
        state = folder.restore(language.model, optimizer)
        play = player(language) if player else make_player(recipe, language, state.version)
        try:
            loop = _Loop(recipe, folder, language.model, reference, optimizer, state, play, emit)
            emit(RunStarted("grpo", state.step, recipe.steps, folder.path, resolved(recipe)))
            with stop_on_signal() as stop:
                return loop.run(stop)
        finally:
            play.close()


class _Loop:
    def __init__(
        self,
        recipe: GrpoRecipe,
        folder: RunFolder,
        model: Any,
        reference: dict[str, torch.Tensor],
        optimizer: torch.optim.Optimizer,
        state: TrainState,
        player: Player,
        emit: OnEvent,
    ) -> None:
        self.recipe, self.folder, self.model, self.reference = recipe, folder, model, reference
        self.optimizer, self.state, self.player, self.emit = optimizer, state, player, emit
        self.order = TaskOrder(player.tasks("train"), recipe.seed)
        self.scorer = Scorer(
            model, compute_dtype(recipe.model.dtype), recipe.sampling.temperature, recipe.batch.micro_batch_tokens
        )
        held_out = player.tasks("eval")[: recipe.eval.max_tasks] if recipe.eval.every else ()
        self.eval_size = len(held_out) * recipe.eval.episodes_per_task
        self.last_eval: dict[str, float] = {}
        self.step_seconds = [0.0]
        self.trained = set(state.ledger)
        planned = self._next_groups()
        if state.in_flight and state.in_flight != planned:
            raise ConfigError(
                f"the checkpoint of step {state.step} would go on with {state.in_flight[0]!r}, but the tasks now give "
                f"{planned[0]!r}: the task set has changed. Restore it, or choose another 'out'"
            )
        state.in_flight = planned

    def run(self, stop: threading.Event) -> Result:
        """Steps until the end; evaluation and checkpoint come between steps."""
        recipe, state = self.recipe, self.state
        while True:
            last = state.step >= recipe.steps or self._is_late()
            if recipe.eval.every and (last or state.step % recipe.eval.every == 0):
                self._evaluate(stop)
            if last or state.step % recipe.checkpoint.every == 0:
                path = self._save()
                if last:
                    reason = "time" if state.step < recipe.steps else "done"
                    self.emit(RunEnded(state.step, reason, path))
                    return Result(state.step, reason, path, self.last_eval)
            if not self._is_late():
                self._step(stop)

    def _step(self, stop: threading.Event) -> None:
        """Collect, weigh, update; then the step counts."""
        step, clock = self.state.step + 1, Clock()
        computed = self.player.model_seconds
        with clock.phase("rollout"):
            gathered = self._gather(step, stop)
        computed = self.player.model_seconds - computed
        self._leave_if(stop)
        self.emit(PhaseStarted(step, "train"))
        with clock.phase("train"):
            batch = build_batch(list(gathered.trained.values()), self.recipe.sampling.temperature)
            batch.advantage = self._advantages(batch, list(gathered.trained.values()))
            updates = self._update(step, batch)
        metrics = {
            **episode_metrics(gathered.played, gathered.attempts),
            "groups": gathered.groups,
            "zero_signal_groups": gathered.silent,
            "trained_episodes": len(gathered.trained),
            **{f"left_out/{reason}": count for reason, count in gathered.left_out.items()},
            "lr": learning_rate(self.recipe.optimizer, step, self.recipe.steps),
            **update_metrics(updates),
            **time_metrics(gathered.attempts, clock, computed),
        }
        self._count(step, gathered, clock.total)
        self.folder.log.write("train", step, metrics)
        self.emit(StepEnded(step, metrics))

    def _gather(self, step: int, stop: threading.Event) -> Gathered:
        """Play the groups of one step; with dapo, replace groups without signal for some rounds."""
        rollout, result = self.recipe.rollout, Gathered()
        sampling = SamplingParams(
            max_tokens=self.recipe.sampling.max_tokens, temperature=self.recipe.sampling.temperature
        )
        self.emit(PhaseStarted(step, "rollout", rollout.groups * rollout.group_size))
        with self.folder.episodes("train", step) as writer:

            def keep(episode: Episode) -> None:
                writer.write(episode)
                result.attempts.append(episode)
                self.emit(EpisodeEnded(step, episode, len(result.attempts)))

            for _ in range(self.recipe.advantage.max_rounds):
                missing = rollout.groups - (result.groups - result.silent)
                if missing == 0 or stop.is_set():
                    break
                slots = self.order.slots(self.state.cursor + result.groups, missing)
                jobs = group_jobs(slots, rollout.group_size, self.recipe.seed)
                try:
                    episodes = self.player.play("train", jobs, sampling, keep, stop).episodes
                except Exception:
                    self._save()  # the weights are those of the last finished step
                    raise
                self._sort({episode.id: job.id for job, episode in zip(jobs, episodes, strict=True)}, episodes, result)
                result.groups += missing
        return result

    def _sort(self, units: dict[str, str], episodes: list[Episode], result: Gathered) -> None:
        """Take up the episodes of one round: all that may be trained on, or with dapo those of groups with signal."""
        kept = keep_trainable(episodes, self.recipe.advantage.truncated)
        labels = {label: number for number, label in enumerate(dict.fromkeys(e.group for e in episodes))}
        group = torch.tensor([labels[e.group] for e in kept.episodes], dtype=torch.int64)
        reward = torch.tensor([e.reward for e in kept.episodes], dtype=torch.float64)
        signal = has_signal(reward, group, self.recipe.advantage.tolerance)
        result.silent += len(labels) - group[signal].unique().numel()
        for episode, loud in zip(kept.episodes, signal, strict=True):
            if bool(loud) or self.recipe.advantage.estimator != "dapo":
                result.trained[units[episode.id]] = episode
        result.played += episodes
        for reason, count in kept.left_out.items():
            result.left_out[reason] = result.left_out.get(reason, 0) + count

    def _advantages(self, batch: Batch, episodes: list[Episode]) -> torch.Tensor:
        """Advantage of each trained token, float32 [B, T]."""
        section, group = self.recipe.advantage, group_of_members(batch)
        if section.estimator == "gdpo":
            weights = self.recipe.reward.weights or {}
            parts = [[episode.metrics[f"reward/{name}"] for name in weights] for episode in episodes]
            each = component_advantage(
                torch.tensor(parts, dtype=torch.float64).reshape(len(episodes), len(weights)),
                torch.tensor(list(weights.values())),
                group,
                eps=section.eps,
                tolerance=section.tolerance,
            )
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
        return whiten(spread, batch.mask) if section.whitened else spread

    def _update(self, step: int, batch: Batch) -> list[Update]:
        """All optimizer updates of one step. A batch without any advantage, or without rows, changes nothing."""
        recipe, frozen = self.recipe, Frozen()
        set_learning_rate(self.optimizer, recipe.optimizer, step, recipe.steps)
        corrected = recipe.objective.correction.kind != "none"
        if recipe.objective.old_logprobs == "recompute" and (recipe.updates > 1 or corrected):
            frozen.old = self.scorer.whole(batch)
        if recipe.objective.kl.coefficient > 0:
            with swapped_in(self.model, self.reference):
                frozen.reference = self.scorer.whole(batch)
        updates = [
            policy_update(self.scorer, self.optimizer, batch, rows, frozen, recipe)
            for _ in range(recipe.batch.epochs)
            for rows in split_members(batch, recipe.batch.minibatches)
        ]
        if any(update.grad_norm is not None for update in updates):
            self.player.update(trained_weights(self.model))
            self.state.version += 1
        return updates

    def _count(self, step: int, gathered: Gathered, seconds: float) -> None:
        """The step is done: move the cursor and enter what was trained into the ledger, each unit once."""
        twice = self.trained & set(gathered.trained)
        if twice:
            raise TrainerError(f"step {step} trained {sorted(twice)[0]!r} again; the ledger of this run is damaged")
        self.trained |= set(gathered.trained)
        state = self.state
        state.ledger += list(gathered.trained)
        state.step, state.cursor = step, state.cursor + gathered.groups
        state.elapsed_s += seconds
        self.step_seconds.append(seconds)
        state.in_flight = self._next_groups()

    def _next_groups(self) -> list[str]:
        return [slot.key for slot in self.order.slots(self.state.cursor, self.recipe.rollout.groups)]

    def _evaluate(self, stop: threading.Event) -> None:
        """Held-out pass rate of the present weights, unless a resumed run already has it."""
        step = self.state.step
        if known := self.folder.metrics("eval", step):
            self.last_eval = known
            return
        count = 0

        def keep(episode: Episode) -> None:
            nonlocal count
            count += 1
            writer.write(episode)
            self.emit(EpisodeEnded(step, episode, count))

        self.emit(PhaseStarted(step, "eval", self.eval_size))
        with self.folder.episodes("eval", step) as writer:
            found = evaluate(
                self.player,
                self.recipe.eval,
                self.recipe.sampling,
                seed=self.recipe.seed,
                step=step,
                on_episode=keep,
                cancel=stop,
            )
        self._leave_if(stop)
        self.state.elapsed_s += found.metrics["seconds/eval"]
        self.last_eval = found.metrics
        self.folder.log.write("eval", step, found.metrics)
        self.emit(EvalEnded(step, found.metrics))

    def _save(self) -> Path:
        self.emit(PhaseStarted(self.state.step, "checkpoint"))
        path = self.folder.save(self.state, self.model, self.optimizer)
        self.emit(CheckpointSaved(self.state.step, path))
        return path

    def _leave_if(self, stop: threading.Event) -> None:
        if stop.is_set():
            path = self._save()
            raise InterruptedTraining(
                f"stopped after step {self.state.step} of {self.recipe.steps}; the step under way was given up. "
                f"{path} is whole: run again with --resume to go on"
            )

    def _is_late(self) -> bool:
        """True if one more step like the slowest of the last three would end after the time budget."""
        budget = self.recipe.time_budget_s
        return budget is not None and self.state.elapsed_s + max(self.step_seconds[-3:]) > budget


def main() -> None:
    """The command line of this module."""
    sys.exit(command(__doc__ or "", load_grpo, run))


if __name__ == "__main__":
    main()
