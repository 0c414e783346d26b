"""SFT on demonstrations played in real sandboxes, and GRPO from there: the whole chain, with a model of 0.1 M."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from forkgym.agents.records import read_episodes
from forkgym.errors import ConfigError
from forkgym.trainers import grpo, sft
from forkgym.trainers.recipe_file import load_grpo, load_sft

TASK = "env.tasks=swe/tiny/clamp/upper-bound"
MODEL = {"name": "tiny-random", "dtype": "float32"}


def sft_recipe(out: Path, *overrides: str, **model: Any) -> Any:
    return load_sft(
        "sft-tiny",
        [f"out={out}", TASK, f"model={MODEL | model}", "episodes_per_step=1", "checkpoint.every=1000", *overrides],
    )


def test_a_random_model_learns_one_task_from_its_demonstration_and_solves_it(tmp_path: Path) -> None:
    warm = sft_recipe(tmp_path / "sft", "steps=130", "optimizer={lr: 3e-3, schedule: cosine, warmup_steps: 5}")
    learned = sft.run(warm)
    assert learned.metrics["loss"] < 0.1
    recipe = load_grpo(
        "grpo-tiny",
        [
            f"out={tmp_path / 'grpo'}",
            TASK,
            "env.eval_split=train",
            f"model={MODEL | {'start_from': str(tmp_path / 'sft')}}",
            "env.options={max_turns: 4}",
            "rollout={groups: 1, group_size: 4, concurrency: 4}",
            "sampling={max_tokens: 120, context: 4096, temperature: 1.0}",
            "eval={every: 1, temperature: 0.0}",
            "steps=1",
        ],
    )
    result = grpo.run(recipe)
    assert result.metrics["pass_rate"] == 1.0
    [episode] = read_episodes(tmp_path / "grpo" / "episodes" / "eval-000000.jsonl").episodes
    assert episode.status == "finished"
    assert episode.reward == 1.0
    played = read_episodes(tmp_path / "grpo" / "episodes" / "train-000001.jsonl").episodes
    assert [episode.group for episode in played] == ["swe/tiny/clamp/upper-bound#0"] * 4
    assert len({tuple(episode.segments[0].ids) for episode in played}) == 4


def test_demonstrations_are_read_from_a_file_and_resumed_exactly(tmp_path: Path) -> None:
    straight = sft.run(sft_recipe(tmp_path / "straight", "steps=4"))
    data = f"data={{path: {tmp_path / 'straight' / 'demonstrations.jsonl'}}}"
    first = sft.run(sft_recipe(tmp_path / "parts", data, "steps=2", "optimizer.schedule=constant"))
    assert first.step == 2
    resumed = sft.run(sft_recipe(tmp_path / "parts", data, "steps=4", "optimizer.schedule=constant"), resume=True)
    whole = sft.run(sft_recipe(tmp_path / "whole", data, "steps=4", "optimizer.schedule=constant"))
    assert straight.step == resumed.step == 4
    files = [run.checkpoint / "weights.safetensors" for run in (resumed, whole)]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_weak_demonstrations_are_refused(tmp_path: Path) -> None:
    sft.run(sft_recipe(tmp_path / "good", "steps=1"))
    path = tmp_path / "good" / "demonstrations.jsonl"
    path.write_text(path.read_text().replace('"reward":1.0', '"reward":0.5'))
    with pytest.raises(ConfigError, match="no demonstration with a reward of at least"):
        sft.run(sft_recipe(tmp_path / "weak", f"data={{path: {path}}}", "steps=1"))


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read episodes"):
        sft.run(sft_recipe(tmp_path / "x", f"data={{path: {tmp_path / 'none.jsonl'}}}", "steps=1"))


def test_only_the_bash_agent_can_demonstrate(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="demonstrations are played through the agent 'bash'"):
        sft.run(sft_recipe(tmp_path / "x", "agent={name: collections:UserDict, format: chatml}", "steps=1"))
