"""Episodes written token by token, and recipes for the token game."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from forkgym.agents.base import Completion, Episode, Segment, Status
from forkgym.trainers.recipe import GrpoRecipe

MakeEpisode = Callable[..., Episode]


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """Tiny models gain nothing from more, and lose much on a busy machine."""
    torch.set_num_threads(1)


@pytest.fixture
def make_episode() -> MakeEpisode:
    """Build an episode; each segment is a list of (observed ids, sampled ids) turns, every sampled logprob -1."""

    def make(
        id: str,
        segments: list[list[tuple[list[int], list[int]]]],
        *,
        reward: float | None = 1.0,
        group: str = "g",
        status: Status = "finished",
        reason: str = "",
    ) -> Episode:
        episode = Episode(id, "task", group, "test", 0, status=status, reason=reason, reward=reward)
        for turns in segments:
            segment = Segment()
            for turn, (observed, sampled) in enumerate(turns):
                segment.append_prompt(observed, turn)
                segment.append_completion(Completion(tuple(sampled), (-1.0,) * len(sampled), "stop", 3), turn)
            episode.segments.append(segment)
        return episode

    return make


@pytest.fixture
def recipe(tmp_path: Path) -> Callable[..., GrpoRecipe]:
    """A small run of the token game; keyword arguments replace whole sections."""

    def make(**changes: Any) -> GrpoRecipe:
        values: dict[str, Any] = {
            "algorithm": "grpo",
            "model": {"name": "tiny-random", "dtype": "float32"},
            "rollout": {"groups": 2, "group_size": 4},
            "optimizer": {"lr": 1e-2},
            "eval": {"every": None},
            "steps": 3,
            "out": str(tmp_path / "run"),
        }
        return GrpoRecipe.model_validate(values | changes)

    return make
