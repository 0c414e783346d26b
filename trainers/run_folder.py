"""The folder of one run: who may write it, where a resumed run goes on, what is kept.

recipe.json              the recipe as resolved
checkpoints/step-000010  see ``forkgym.trainers.checkpoint``
metrics.jsonl            one row per step and evaluation
tensorboard/             the same, where tensorboard is installed
episodes/train-000011.jsonl, eval-000010.jsonl   every attempt, as ``forkgym.agents.records`` reads it
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from forkgym.agents.records import EpisodeWriter
from forkgym.errors import ConfigError
from forkgym.trainers import checkpoint
from forkgym.trainers.checkpoint import Parts, TrainState
from forkgym.trainers.metrics import MetricLog, read_metrics
from forkgym.trainers.recipe import Recipe

MAY_CHANGE = {"steps", "time_budget_s", "checkpoint", "eval", "monitor", "out"}
"""What a resumed run may set anew: none of it changes what a step computes."""


@dataclass(frozen=True)
class Result:
    """How a run ended: ``reason`` is done or time.

    ``metrics`` are those of the last evaluation, or (SFT) of the last step made in this process; empty without any.
    """

    step: int
    reason: str
    checkpoint: Path
    metrics: dict[str, float]


class RunFolder:
    """Opens ``recipe.out`` for one writer. A context manager.

    With ``resume`` the run goes on from its newest whole checkpoint, or begins if there is none. Raises ``ConfigError``
    if this is one of several ranks, if another process writes there, if it holds a run and ``resume`` is not asked for,
    or if the recipe differs.
    """

    def __init__(self, recipe: Recipe, resume: bool) -> None:
        ranks = os.environ.get("WORLD_SIZE", "1")
        if ranks not in ("", "1"):
            raise ConfigError(
                f"training runs in one process, but WORLD_SIZE is {ranks}: start it without torchrun; "
                "rollout.ray_address and rollout.engine: vllm spread the rollouts"
            )
        self.path = Path(recipe.out)
        self.path.mkdir(parents=True, exist_ok=True)
        self._recipe = recipe
        self._lock = (self.path / ".lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.start = checkpoint.latest(self.path / "checkpoints")
            if self.start and not resume:
                self._begin_anew(self.start)
            step = self._check_same(self.start) if self.start else 0
            self._forget_after(step)
            self.log = MetricLog(self.path, step)
        except BlockingIOError as error:
            self._lock.close()
            raise ConfigError(f"another process is training in {self.path}; choose another 'out'") from error
        except BaseException:
            self._lock.close()
            raise
        (self.path / "recipe.json").write_text(json.dumps(recipe.model_dump(mode="json"), indent=1))

    def restore(self, model: Any, optimizer: torch.optim.Optimizer, parts: Parts | None = None) -> TrainState:
        """Weights, optimizer and generators of the checkpoint to go on from; without one, a new state and new seeds."""
        if self.start is None:
            checkpoint.seed_generators(self._recipe.seed)
            state = TrainState()
        else:
            state = checkpoint.restore(self.start, model, optimizer, parts)
        state.recipe = self._recipe.model_dump(mode="json")
        return state

    def save(self, state: TrainState, model: Any, optimizer: torch.optim.Optimizer, parts: Parts | None = None) -> Path:
        """Write the checkpoint of a finished step."""
        return checkpoint.save(self.path / "checkpoints", state, model, optimizer, self._recipe.checkpoint.keep, parts)

    def episodes(self, kind: str, step: int) -> EpisodeWriter:
        """A new file for the attempts of one phase; one left by an abandoned try is replaced."""
        path = self.path / "episodes" / f"{kind}-{step:06d}.jsonl"
        path.unlink(missing_ok=True)
        return EpisodeWriter(path)

    def metrics(self, kind: str, step: int) -> dict[str, float]:
        """The numbers already written for a step, empty if there are none."""
        for row in read_metrics(self.path):
            if row.pop("kind") == kind and row.pop("step") == step:
                del row["time"]
                return row
        return {}

    def close(self) -> None:
        self.log.close()
        self._lock.close()

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begin_anew(self, start: Path) -> None:
        """Forget a run that never finished a step; refuse to touch any other."""
        if int(json.loads((start / checkpoint.STATE).read_text())["step"]) > 0:
            raise ConfigError(f"{self.path} already holds a run: resume it, or choose another 'out'")
        shutil.rmtree(start.parent)
        self.start = None

    def _check_same(self, start: Path) -> int:
        """The step of a checkpoint, whose recipe must be this one but for what may change."""
        stored: dict[str, Any] = json.loads((start / checkpoint.STATE).read_text())
        ours, theirs = self._recipe.model_dump(mode="json"), _completed(self._recipe, stored["recipe"])
        changed = sorted(name for name in ours | theirs if ours.get(name) != theirs.get(name))
        refused = [name for name in changed if name not in MAY_CHANGE]
        if "steps" in changed and self._recipe.optimizer.schedule != "constant":
            refused.append("steps (the learning-rate schedule depends on it)")
        if refused:
            raise ConfigError(
                f"{self.path} was begun with another recipe; these differ: {', '.join(refused)}. "
                "Resume with the same ones, or choose another 'out'"
            )
        return int(stored["step"])

    def _forget_after(self, step: int) -> None:
        """Remove episodes of steps that will be played again."""
        for path in (self.path / "episodes").glob("*-[0-9]*.jsonl"):
            if int(path.stem.rsplit("-", 1)[1]) > step:
                path.unlink()


def _completed(section: BaseModel, stored: Mapping[str, Any]) -> dict[str, Any]:
    """A stored recipe with the defaults of options that are younger than it."""
    result = dict(stored)
    for name, field in type(section).model_fields.items():
        if name not in stored and not field.is_required():
            result[name] = to_jsonable_python(field.get_default(call_default_factory=True))
        elif isinstance(value := getattr(section, name), BaseModel) and isinstance(result.get(name), dict):
            result[name] = _completed(value, result[name])
    return result
