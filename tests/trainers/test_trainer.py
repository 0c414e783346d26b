"""Trainers from Python: what the page says runs as written, live environments and agents, refusals."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

import forkgym.trainers
from forkgym.agents.loops.bash import BashAgent
from forkgym.agents.records import read_episodes
from forkgym.envs.base import Evidence
from forkgym.errors import ConfigError
from forkgym.trainers import ActorCriticTrainer, GRPOTrainer

PAGE = Path(__file__).parents[2] / "docs" / "training.md"
SMALL: dict[str, Any] = {
    "model": "tiny-random",
    "rollout": {"groups": 1, "group_size": 2, "concurrency": 2},
    "sampling": {"max_tokens": 8, "context": 512},
}


def python(code: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-P", "-W", "error", "-c", code],
        cwd=folder, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_page_runs_as_written(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks[0].strip().splitlines()) <= 5
    assert python("\n".join(blocks), tmp_path).splitlines()[:2] == ["done 2", "done"]
    assert (tmp_path / "runs" / "mine" / "checkpoints" / "step-000001").is_dir()


def test_importing_the_package_brings_no_torch(tmp_path: Path) -> None:
    there = "print('torch' in sys.modules)"
    code = f"import sys, forkgym.trainers; {there}; forkgym.trainers.objectives; {there}"
    assert python(code, tmp_path).split() == ["False", "True"]


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="GRPO_Trainer"):
        _ = getattr(forkgym.trainers, "GRPO_Trainer")  # noqa: B009


CALLS = itertools.count()


def in_turns(evidence: Evidence) -> float:
    """A reward that differs within a group of two, so that there is something to learn."""
    return float(next(CALLS) % 2)


def make_env() -> Any:
    return gym.make("forkgym/SWE-v0", tasks="swe/tiny/*", split="test", max_turns=1, reward=in_turns)


def test_a_function_makes_environments_and_a_resumed_run_goes_on_with_the_right_version(tmp_path: Path) -> None:
    def trainer(steps: int) -> GRPOTrainer:
        return GRPOTrainer(
            make_env,
            agent=BashAgent,
            eval_env=make_env,
            steps=steps,
            out=tmp_path / "run",
            eval={"max_tasks": 1},
            **SMALL,
        )

    assert trainer(1).train().step == 1
    resumed = trainer(2)
    assert resumed.train(resume=True).step == 2
    assert resumed.recipe.env.id.endswith(":make_env")
    assert [row["step"] for row in resumed.metrics() if row["kind"] == "train"] == [1, 2]
    expected = set(make_env().unwrapped.tasks.ids)
    for step in (1, 2):
        played = read_episodes(tmp_path / "run" / "episodes" / f"train-{step:06d}.jsonl").episodes
        assert {episode.task for episode in played} <= expected
        versions = {v for e in played for s in e.segments for v, own in zip(s.version, s.sampled, strict=True) if own}
        assert versions == {step - 1}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"env": make_env, "reward": {"name": "score"}}, "remove reward"),
        ({"env": make_env, "eval": {"every": 5}}, "give eval_env"),
        ({"env": "forkgym/SWE-v0", "eval_env": make_env}, "env.eval_split"),
        ({"env": "forkgym/SWE-v0", "rolout": {}}, "GRPOTrainer: unknown key 'rolout'; did you mean 'rollout'"),
        ({"env": {"task": "swe/*"}}, "did you mean 'tasks'"),
    ],
)
def test_refusals(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        GRPOTrainer(**options, steps=1, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_environment_of_another_kind_is_refused(tmp_path: Path) -> None:
    trainer = ActorCriticTrainer(lambda: gym.make("CartPole-v1"), steps=1, out=tmp_path / "run", **SMALL)
    with pytest.raises(ConfigError, match="CodingEnv"):
        trainer.train()
