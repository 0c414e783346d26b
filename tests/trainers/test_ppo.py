"""The PPO loop on the token game: it learns, its critic knows more than the policy, it stops and goes on."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from forkgym.agents.collect import Job
from forkgym.agents.records import read_episodes
from forkgym.errors import ConfigError
from forkgym.trainers import grpo, ppo
from forkgym.trainers.checkpoint import find
from forkgym.trainers.errors import InterruptedTraining, TrainerError
from forkgym.trainers.events import EpisodeEnded, Event
from forkgym.trainers.metrics import read_metrics
from forkgym.trainers.recipe import GrpoRecipe, PpoRecipe
from forkgym.trainers.recipe_file import load_ppo
from forkgym.trainers.run_folder import Result
from forkgym.trainers.token_game import Rule, TokenGame, low_ids

MakeRecipe = Callable[..., PpoRecipe]
Tells = Callable[[Job], Mapping[str, Any]]


@pytest.fixture
def recipe(tmp_path: Path) -> MakeRecipe:
    def make(**changes: Any) -> PpoRecipe:
        values: dict[str, Any] = {
            "algorithm": "ppo",
            "model": {"name": "tiny-random", "dtype": "float32"},
            "rollout": {"groups": 8, "group_size": 1},
            "optimizer": {"lr": 1e-2},
            "critic": {"hidden": 16, "optimizer": {"lr": 1e-2}},
            "eval": {"every": None},
            "steps": 3,
            "out": str(tmp_path / "run"),
        }
        return PpoRecipe.model_validate(values | changes)

    return make


def train(recipe: PpoRecipe, rule: Rule = low_ids, tells: Tells | None = None, **options: Any) -> Result:
    return ppo.run(recipe, player=lambda language: TokenGame(language.model, rule, tells=tells), **options)


def rows(recipe: PpoRecipe, kind: str = "train") -> list[dict[str, Any]]:
    return [row for row in read_metrics(Path(recipe.out)) if row["kind"] == kind]


def files(recipe: PpoRecipe) -> list[bytes]:
    folder = find(Path(recipe.out))
    return [(folder / name).read_bytes() for name in ("weights.safetensors", "critic.safetensors")]


def coin(job: Job) -> bool:
    return job.seed % 2 == 0


def lucky(job: Job, ids: Any) -> float:
    """Luck that no action decides."""
    return float(coin(job))


def told(job: Job) -> dict[str, Any]:
    return {"fraction": float(coin(job)), "score": 0.0, "resolved": False, "failed": [], "files_changed": 0,
            "gold_distance": 0.0}  # fmt: skip


@pytest.mark.parametrize("gae", [{}, {"level": "turn"}, {"alpha": 0.5}])
@pytest.mark.parametrize("trunk", ["shared", "own"])
def test_it_learns(recipe: MakeRecipe, gae: dict[str, Any], trunk: str) -> None:
    setup = recipe(
        gae=gae, critic={"trunk": trunk, "hidden": 16, "optimizer": {"lr": 1e-2}}, steps=15,
        rollout={"groups": 24, "group_size": 1}, eval={"every": 15, "episodes_per_task": 20, "temperature": 1.0},
    )  # fmt: skip
    train(setup)
    before, after = rows(setup, "eval")
    assert before["reward"] < 0.4
    assert after["reward"] > 0.7


def test_a_critic_that_is_told_explains_what_one_that_is_not_cannot(recipe: MakeRecipe, tmp_path: Path) -> None:
    section = {"hidden": 16, "updates": 16, "optimizer": {"lr": 1e-2}}
    blind = recipe(critic=section, steps=8, out=str(tmp_path / "blind"))
    knowing = recipe(critic={**section, "inputs": ["fraction"]}, steps=8)
    train(blind, lucky)
    train(knowing, lucky, told)
    ends = [rows(run)[-1]["critic/explained_variance"] for run in (blind, knowing)]
    assert ends[0] < 0.2
    assert ends[1] > 0.8


def test_what_the_critic_is_told_never_reaches_the_policy(recipe: MakeRecipe, tmp_path: Path) -> None:
    """While only the critic learns, another privileged block changes its values, and no sampled token."""
    critic = {"hidden": 16, "inputs": ["fraction"], "warmup_steps": 3, "optimizer": {"lr": 1e-2}}
    first, second = recipe(critic=critic), recipe(critic=critic, out=str(tmp_path / "second"))
    train(first, lucky, told)
    train(second, lucky, lambda job: {**told(job), "fraction": 0.5})
    played = [
        [(e.id, e.segments[0].ids, e.segments[0].logprobs) for e in episodes.episodes]
        for run in (first, second)
        for episodes in [read_episodes(Path(run.out) / "episodes" / "train-000003.jsonl")]
    ]
    assert played[0] == played[1]
    assert rows(first)[2]["critic/value"] != rows(second)[2]["critic/value"]
    weights = [files(run)[0] for run in (first, second)]
    assert weights[0] == weights[1]
    assert all(row["updates"] == 0 for row in rows(first))


def test_a_critic_with_inputs_needs_an_agent_that_records_them(recipe: MakeRecipe) -> None:
    with pytest.raises(TrainerError, match="no privileged record"):
        train(recipe(critic={"inputs": ["fraction"]}))


def test_a_step_whose_episodes_all_failed_changes_nothing(recipe: MakeRecipe) -> None:
    setup = recipe(steps=1, checkpoint={"every": 1})
    train(setup, lambda job, ids: None)
    [row] = rows(setup)
    assert (row["updates"], row["trained_episodes"]) == (0, 0)


def test_ctrl_c_and_resume_end_as_if_nothing_had_happened(recipe: MakeRecipe, tmp_path: Path) -> None:
    straight = recipe(out=str(tmp_path / "straight"), steps=4, checkpoint={"every": 3})
    train(straight)
    setup = recipe(steps=4, checkpoint={"every": 3})

    def interrupt(event: Event) -> None:
        if isinstance(event, EpisodeEnded) and (event.step, event.done) == (3, 5):
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(InterruptedTraining):
        train(setup, on_event=interrupt)
    train(setup, resume=True)
    assert files(setup) == files(straight)


def test_a_damaged_critic_is_a_damaged_checkpoint(recipe: MakeRecipe) -> None:
    setup = recipe(checkpoint={"every": 1})
    train(setup)
    newest = find(Path(setup.out))
    (newest / "critic.safetensors").write_bytes(b"no")
    assert find(Path(setup.out)).name == "step-000002"


def test_the_policy_of_a_ppo_run_starts_a_grpo_run(recipe: MakeRecipe, tmp_path: Path) -> None:
    setup = recipe(steps=1)
    train(setup)
    values = {
        "algorithm": "grpo", "model": {"name": "tiny-random", "dtype": "float32", "start_from": setup.out},
        "rollout": {"groups": 2, "group_size": 2}, "optimizer": {"lr": 1e-30}, "eval": {"every": None}, "steps": 1,
        "out": str(tmp_path / "grpo"),
    }  # fmt: skip
    grpo.run(GrpoRecipe.model_validate(values), player=lambda language: TokenGame(language.model))
    assert (find(tmp_path / "grpo") / "weights.safetensors").read_bytes() == files(setup)[0]


def test_another_algorithm_does_not_resume_it(recipe: MakeRecipe) -> None:
    setup = recipe(steps=1)
    train(setup)
    other = GrpoRecipe.model_validate(
        {**setup.model_dump(exclude={"gae", "critic", "algorithm", "advantage"}, exclude_unset=True),
         "algorithm": "grpo", "rollout": {"groups": 4, "group_size": 2}}
    )  # fmt: skip
    with pytest.raises(ConfigError, match="begun with another recipe; these differ: algorithm"):
        grpo.run(other, resume=True, player=lambda language: TokenGame(language.model))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gae": {"lam": 0.9, "alpha": 0.1}}, "give gae.lam or gae.alpha, not both"),
        ({"gae": {"rewards": "turns"}}, "set env.options.reward_mode"),
        ({"env": {"options": {"reward_mode": "delta"}}}, "set gae.rewards: turns"),
        ({"critic": {"train_layers": 2}}, "critic.trunk: own, or remove it"),
        ({"critic": {"inputs": ["score", "score"]}}, "names an input twice"),
        ({"agent": {"options": {"privileged": True}}}, "set by critic.inputs"),
        ({"batch": {"minibatches": 9}}, "larger than the number of episodes"),
    ],
)
def test_recipes_that_contradict_themselves(recipe: MakeRecipe, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        recipe(**changes)


def test_a_recipe_of_another_algorithm_is_refused() -> None:
    with pytest.raises(ConfigError, match="grpo-tiny is a recipe for grpo, not ppo"):
        load_ppo("grpo-tiny")
