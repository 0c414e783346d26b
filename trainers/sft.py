"""Supervised fine-tuning on demonstration episodes: only tokens marked as sampled are trained.

python -m forkgym.trainers.sft --recipe sft-tiny steps=40 out=runs/warm
python -m forkgym.trainers.grpo --recipe grpo-tiny model.start_from=runs/warm
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from forkgym.agents.base import Episode, SamplingParams
from forkgym.agents.collect import Job
from forkgym.agents.loops.bash import BashAgent
from forkgym.agents.loops.oracle import DemonstrationAgent
from forkgym.agents.records import EpisodeWriter, read_episodes
from forkgym.agents.registry import make_agent, make_format
from forkgym.errors import ConfigError

try:
    from forkgym.agents.models import LanguageModel
    from forkgym.trainers.batch import build_batch, keep_trainable
except ModuleNotFoundError as error:
    from forkgym.trainers.command import without

    without(error, __name__)

from forkgym.trainers.command import command
from forkgym.trainers.errors import InterruptedTraining
from forkgym.trainers.events import EpisodeEnded, OnEvent, PhaseStarted
from forkgym.trainers.metrics import update_metrics
from forkgym.trainers.offline.data import best_of, logged_episodes
from forkgym.trainers.offline.fit import Start, fit
from forkgym.trainers.plan import seed_of
from forkgym.trainers.player import EnvPlayer
from forkgym.trainers.recipe import SftRecipe
from forkgym.trainers.recipe_file import load_sft
from forkgym.trainers.run_folder import Result
from forkgym.trainers.update import supervised_update


def run(recipe: SftRecipe, *, resume: bool = False, on_event: OnEvent | None = None) -> Result:
    """Train by ``recipe``; see ``forkgym.trainers.offline.fit.fit`` for what is raised."""

    def prepare(start: Start) -> _Lesson:
        return _Lesson(recipe, start, demonstrations(recipe, start.language, start.folder, start.emit, start.stop))

    return fit(recipe, prepare, recipe.episodes_per_step, resume=resume, on_event=on_event)


class _Lesson:
    def __init__(self, recipe: SftRecipe, start: Start, episodes: dict[str, Episode]) -> None:
        self._recipe, self._start, self._episodes = recipe, start, episodes

    @property
    def units(self) -> Sequence[str]:
        return list(self._episodes)

    def learn(self, units: Sequence[str]) -> dict[str, float]:
        """One update on these demonstrations."""
        batch = build_batch([self._episodes[unit] for unit in units])
        update = supervised_update(
            self._start.scorer, self._start.optimizer, batch, self._recipe.optimizer.max_grad_norm
        )
        return {"loss": update.loss, **update_metrics([update])}


def demonstrations(
    recipe: SftRecipe, language: LanguageModel, folder: Path, emit: OnEvent, stop: threading.Event
) -> dict[str, Episode]:
    """Demonstrations by episode id: the good episodes of ``data.runs``, those of ``data.path``, or played in the
    training tasks and kept in ``folder``.

    Raises ``ConfigError`` if none is good enough or two have one id.
    """
    if recipe.data.runs:
        return _accepted(recipe, language)
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


def _accepted(recipe: SftRecipe, language: LanguageModel) -> dict[str, Episode]:
    """What rejection sampling keeps of the logged episodes."""
    data = recipe.data
    logged = logged_episodes(data.runs, language.tokenizer)
    kept = best_of(logged, data.min_reward, data.max_per_task, recipe.seed)
    if not kept:
        raise ConfigError(
            f"none of the {len(logged)} scored episodes of data.runs has a reward of at least {data.min_reward}: "
            "sample more, or lower data.min_reward"
        )
    return {episode.id: episode for episode in kept}


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
