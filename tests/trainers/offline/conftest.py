"""Logged runs of the token game, and how well a trained model plays it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from forkgym.agents.base import SamplingParams
from forkgym.agents.collect import Job
from forkgym.trainers import checkpoint, grpo
from forkgym.trainers.models import load_model
from forkgym.trainers.recipe import GrpoRecipe
from forkgym.trainers.sections import ModelSection
from forkgym.trainers.token_game import TokenGame

MODEL = ModelSection(name="tiny-random", dtype="float32")


@pytest.fixture(scope="session")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the untrained model: 2 steps of 6 groups of 8 episodes. Its learning rate changes nothing."""
    out = tmp_path_factory.mktemp("logged") / "run"
    recipe = GrpoRecipe.model_validate(
        {
            "algorithm": "grpo",
            "model": {"name": "tiny-random", "dtype": "float32"},
            "rollout": {"groups": 6, "group_size": 8},
            "optimizer": {"lr": 1e-12},
            "eval": {"every": None},
            "steps": 2,
            "out": str(out),
        }
    )
    grpo.run(recipe, player=lambda language: TokenGame(language.model))
    return out


@pytest.fixture(scope="session")
def plays() -> Callable[[Path | None], float]:
    """The mean reward of 48 episodes by the weights of a run, or by the untrained model."""

    def play(run: Path | None) -> float:
        language = load_model(MODEL, 0)
        if run is not None:
            checkpoint.load_weights(checkpoint.find(run), language.model)
        game = TokenGame(language.model)
        try:
            jobs = [Job("abc"[n % 3], n, "eval", f"eval.{n}") for n in range(48)]
            found = game.play("eval", jobs, SamplingParams(), lambda _: None, threading.Event())
        finally:
            game.close()
        return sum(episode.reward or 0.0 for episode in found.episodes) / len(jobs)

    return play
