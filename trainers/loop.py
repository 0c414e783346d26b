"""The steps of an online trainer, read from top to bottom: play groups, learn from them, count, evaluate, save.

A step is atomic: it plays its groups, makes its updates, and only then counts. What a killed run had not yet saved is
played again with the same tasks and seeds, so each (task visit, sample) is trained once.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from forkgym.agents.base import Agent, Episode, SamplingParams
from forkgym.agents.models import LanguageModel, compute_dtype
from forkgym.agents.registry import make_agent, make_format
from forkgym.errors import ConfigError
from forkgym.trainers import checkpoint
from forkgym.trainers.advantages import has_signal
from forkgym.trainers.base import Batch
from forkgym.trainers.batch import build_batch, keep_trainable, split_members
from forkgym.trainers.checkpoint import Part, TrainState
from forkgym.trainers.describe import resolved
from forkgym.trainers.engines import open_engine
from forkgym.trainers.errors import CollapseError, InterruptedTraining, TrainerError
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
    Warned,
    silence,
)
from forkgym.trainers.interrupt import stop_on_signal
from forkgym.trainers.kinds import TruncatedRule
from forkgym.trainers.metrics import Clock, episode_metrics, read_metrics, time_metrics
from forkgym.trainers.models import load_model, swapped_in, trained_weights
from forkgym.trainers.monitor import signs
from forkgym.trainers.plan import TaskOrder, group_jobs
from forkgym.trainers.player import EnvPlayer, Player
from forkgym.trainers.recipe import LoopRecipe
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


@dataclass
class Learner:
    """What is trained: a model with its optimizer, and by name what else has weights of its own, such as a critic.

    ``reference`` holds the model's weights as the run began.
    """

    model: Any
    optimizer: torch.optim.Optimizer
    reference: Mapping[str, torch.Tensor]
    parts: dict[str, Part] = field(default_factory=dict[str, Part])


def make_player(
    recipe: LoopRecipe,
    language: LanguageModel,
    version: int = 0,
    *,
    own_agent: Callable[..., Agent] | None = None,
    kind: Callable[..., EnvPlayer] = EnvPlayer,
) -> EnvPlayer:
    """Episodes in the recipe's environments, sampled by its engine with the model's weights, of this ``version``.

    ``own_agent`` makes the agent in place of the recipe's name, ``kind`` the player in place of ``EnvPlayer``.
    """
    format, options = make_format(recipe.agent.format, language.tokenizer), recipe.agent_options
    if own_agent is not None:
        agent = own_agent(format=format, **options)
    else:
        agent = make_agent({"name": recipe.agent.name, **options}, format=format)
    return kind(
        recipe.env,
        agent,
        open_engine(recipe, language, version),
        reward=recipe.reward.spec,
        concurrency=recipe.rollout.concurrency,
        retries=recipe.rollout.retries,
        max_failed_share=recipe.rollout.max_failed_share,
        ray_address=recipe.rollout.ray_address,
    )


def train(
    recipe: LoopRecipe,
    make_loop: Callable[[Learner, RunFolder, TrainState, Player, OnEvent], Loop],
    make_parts: Callable[[LanguageModel], dict[str, Part]],
    *,
    resume: bool,
    on_event: OnEvent | None,
    player: Callable[[LanguageModel], Player] | None,
) -> Result:
    """Load the model, go on from a checkpoint or begin, and run the loop; see ``forkgym.trainers.grpo.run``."""
    emit = on_event or silence
    with RunFolder(recipe, resume) as folder:
        language = load_model(recipe.model, recipe.seed)
        if recipe.model.start_from is not None:
            checkpoint.load_weights(checkpoint.find(Path(recipe.model.start_from)), language.model)
        reference = {name: w.clone() for name, w in trained_weights(language.model).items()}
        optimizer = make_optimizer(language.model, recipe.optimizer)
        learner = Learner(language.model, optimizer, reference, make_parts(language))
        state = folder.restore(learner.model, learner.optimizer, learner.parts)
        play = player(language) if player else make_player(recipe, language, state.version)
        try:
            loop = make_loop(learner, folder, state, play, emit)
            emit(RunStarted(recipe.algorithm, state.step, recipe.steps, folder.path, resolved(recipe)))
            with stop_on_signal() as stop:
                return loop.run(stop)
        finally:
            play.close()


class Loop(ABC):
    """The steps of one run. A trainer says how a step learns, and from which episodes."""

    truncated: TruncatedRule = "score"
    tolerance = 0.0  # rewards of a group that lie within this range carry no signal
    only_loud = False  # True: only groups with signal are wanted
    rounds = 1  # of collection in one step: groups that are not wanted are replaced in the next one

    def __init__(
        self,
        recipe: LoopRecipe,
        folder: RunFolder,
        learner: Learner,
        state: TrainState,
        player: Player,
        emit: OnEvent,
    ) -> None:
        self.recipe, self.folder, self.learner = recipe, folder, learner
        self.state, self.player, self.emit = state, player, emit
        self.order = TaskOrder(player.tasks("train"), recipe.seed)
        self.scorer = Scorer(
            learner.model,
            compute_dtype(recipe.model.dtype),
            recipe.sampling.temperature,
            recipe.batch.micro_batch_tokens,
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
        """Collect, learn; then the step counts."""
        step, clock = self.state.step + 1, Clock()
        computed = self.player.model_seconds
        with clock.phase("rollout"):
            gathered = self._gather(step, stop)
        computed = self.player.model_seconds - computed
        self._leave_if(stop)
        self.emit(PhaseStarted(step, "train"))
        with clock.phase("train"):
            episodes = list(gathered.trained.values())
            learned = self._learn(step, build_batch(episodes, self.recipe.sampling.temperature), episodes)
        metrics = {
            **episode_metrics(gathered.played, gathered.attempts),
            "groups": gathered.groups,
            "zero_signal_groups": gathered.silent,
            "zero_signal_rate": gathered.silent / gathered.groups if gathered.groups else 0.0,
            "trained_episodes": len(gathered.trained),
            **{f"left_out/{reason}": count for reason, count in gathered.left_out.items()},
            "lr": learning_rate(self.recipe.optimizer, step, self.recipe.steps),
            **learned,
            **time_metrics(gathered.attempts, clock, computed),
        }
        self._count(step, gathered, clock.total)
        self.folder.log.write("train", step, metrics)
        self.emit(StepEnded(step, metrics))
        self._watch(step)

    def _watch(self, step: int) -> None:
        """Tell signs of collapse, or end the run for them."""
        rows = [row for row in read_metrics(self.folder.path) if row["kind"] == "train"]
        found = "; ".join(signs(self.recipe.monitor, rows))
        if found and self.recipe.monitor.stop:
            path = self._save()
            raise CollapseError(
                f"after step {step}, {found}. {path} is whole; lower optimizer.lr, add a KL term or mix easier and "
                "harder tasks, or set monitor.stop=false and go on with --resume"
            )
        if found:
            self.emit(Warned(step, found))

    def _gather(self, step: int, stop: threading.Event) -> Gathered:
        """Play the groups of one step; replace those that are not wanted for some rounds."""
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

            for _ in range(self.rounds):
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
        """Take up the episodes of one round that may be trained on and are wanted."""
        kept = keep_trainable(episodes, self.truncated)
        labels = {label: number for number, label in enumerate(dict.fromkeys(e.group for e in episodes))}
        group = torch.tensor([labels[e.group] for e in kept.episodes], dtype=torch.int64)
        reward = torch.tensor([e.reward for e in kept.episodes], dtype=torch.float64)
        signal = has_signal(reward, group, self.tolerance)
        result.silent += len(labels) - group[signal].unique().numel()
        for episode, loud in zip(kept.episodes, signal, strict=True):
            if bool(loud) or not self.only_loud:
                result.trained[units[episode.id]] = episode
        result.played += episodes
        for reason, count in kept.left_out.items():
            result.left_out[reason] = result.left_out.get(reason, 0) + count

    @abstractmethod
    def _learn(self, step: int, batch: Batch, episodes: list[Episode]) -> dict[str, float]:
        """Make the updates of one step, and return their numbers."""

    def _update(self, step: int, batch: Batch) -> list[Update]:
        """All updates of the policy in one step. A batch without any advantage, or without rows, changes nothing."""
        recipe, frozen = self.recipe, Frozen()
        set_learning_rate(self.learner.optimizer, recipe.optimizer, step, recipe.steps)
        corrected = recipe.objective.correction.kind != "none"
        if recipe.objective.old_logprobs == "recompute" and (recipe.updates > 1 or corrected):
            frozen.old = self.scorer.whole(batch)
        if recipe.objective.kl.coefficient > 0:
            with swapped_in(self.learner.model, self.learner.reference):
                frozen.reference = self.scorer.whole(batch)
        updates = [
            policy_update(self.scorer, self.learner.optimizer, batch, rows, frozen, recipe)
            for _ in range(recipe.batch.epochs)
            for rows in split_members(batch, recipe.batch.minibatches)
        ]
        if any(update.grad_norm is not None for update in updates):
            self.player.update(trained_weights(self.learner.model))
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
        path = self.folder.save(self.state, self.learner.model, self.learner.optimizer, self.learner.parts)
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
