"""F13: killed at any point, a resumed run ends with the same weights, and each (task, sample) was trained once."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from forkgym.trainers import grpo
from forkgym.trainers.checkpoint import find
from forkgym.trainers.events import EpisodeEnded, Event, PhaseStarted, StepEnded
from forkgym.trainers.metrics import read_metrics
from forkgym.trainers.recipe import GrpoRecipe
from forkgym.trainers.run_folder import Result
from forkgym.trainers.token_game import TokenGame

STEPS = 6
KILLED = """
import os, signal, sys
sys.path.insert(0, {folder!r})
from test_F13 import kill_at, recipe, train
train(recipe({out!r}), on_event=kill_at({point!r}))
"""


def recipe(out: str) -> GrpoRecipe:
    return GrpoRecipe.model_validate(
        {
            "algorithm": "grpo",
            "model": {"name": "tiny-random", "dtype": "float32"},
            "rollout": {"groups": 2, "group_size": 4},
            "optimizer": {"lr": 1e-2, "warmup_steps": 2, "schedule": "cosine"},
            "checkpoint": {"every": 3},
            "eval": {"every": 2},
            "steps": STEPS,
            "out": out,
        }
    )


class Crash(BaseException):
    """Stands in for a kill inside one process."""


def reached(point: str, event: Event) -> bool:
    return {
        "generated": isinstance(event, EpisodeEnded) and (event.step, event.done) == (4, 5),
        "scored": event == PhaseStarted(4, "train"),
        "trained": isinstance(event, StepEnded) and event.step == 4,
        "evaluating": isinstance(event, EpisodeEnded) and event.episode.id.endswith("#eval4.0"),
        "checkpoint": event == PhaseStarted(3, "checkpoint"),
        "first": event == PhaseStarted(0, "checkpoint"),
        "last": event == PhaseStarted(6, "checkpoint"),
    }[point]


def kill_at(point: str) -> Any:
    def watch(event: Event) -> None:
        if reached(point, event):
            signal.raise_signal(signal.SIGKILL)

    return watch


def train(setup: GrpoRecipe, **options: Any) -> Result:
    torch.set_num_threads(1)  # the same in the killed process and in this one
    return grpo.run(setup, player=lambda language: TokenGame(language.model), **options)


def fingerprint(out: str) -> dict[str, Any]:
    """All that must be equal: weights, moments, generators, data order, seeds, learning rates, rewards."""
    found = find(Path(out))
    state = json.loads((found / "state.json").read_text())
    rows = read_metrics(Path(out))
    return {
        "step": state["step"],
        "weights": hashlib.sha256((found / "weights.safetensors").read_bytes()).hexdigest(),
        "training": hashlib.sha256((found / "training.safetensors").read_bytes()).hexdigest(),
        "ledger": state["ledger"],
        "rng": state["rng"],
        "curve": [(r["kind"], r["step"], r["reward"], r.get("lr")) for r in rows],
        "episodes": {
            path.name: [json.loads(line)["seed"] for line in path.read_text().splitlines()]
            for path in sorted((Path(out) / "episodes").iterdir())
        },
    }


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    out = str(tmp_path_factory.mktemp("straight"))
    train(recipe(out))
    return fingerprint(out)


def test_every_sample_is_trained_once(straight: dict[str, Any]) -> None:
    assert len(straight["ledger"]) == len(set(straight["ledger"])) == STEPS * 8
    assert straight["ledger"] == sorted(straight["ledger"], key=lambda unit: int(unit.split("#")[1].split(".")[0]))


@pytest.mark.parametrize("point", ["generated", "trained"])
def test_kill_9_and_resume(tmp_path: Path, straight: dict[str, Any], point: str) -> None:
    out = str(tmp_path)
    code = KILLED.format(folder=str(Path(__file__).parent), out=out, point=point)
    killed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert find(tmp_path).name == "step-000003"
    train(recipe(out), resume=True)
    assert fingerprint(out) == straight


@pytest.mark.parametrize("point", ["first", "checkpoint", "scored", "evaluating", "last"])
def test_a_crash_anywhere_else_and_resume(tmp_path: Path, straight: dict[str, Any], point: str) -> None:
    def crash(event: Event) -> None:
        if reached(point, event):
            raise Crash

    out = str(tmp_path)
    with pytest.raises(Crash):
        train(recipe(out), on_event=crash)
    train(recipe(out), resume=True)
    assert fingerprint(out) == straight


def test_a_half_written_checkpoint_is_passed_over(tmp_path: Path, straight: dict[str, Any]) -> None:
    out = str(tmp_path)

    def crash(event: Event) -> None:
        if reached("last", event):
            raise Crash

    with pytest.raises(Crash):
        train(recipe(out), on_event=crash)
    folder = tmp_path / "checkpoints"
    half = folder / "step-000006"
    half.mkdir()
    whole = (folder / "step-000003" / "weights.safetensors").read_bytes()
    (half / "weights.safetensors").write_bytes(whole[: len(whole) // 2])
    (folder / ".writing-step-000006").mkdir()
    assert find(tmp_path).name == "step-000003"
    train(recipe(out), resume=True)
    assert fingerprint(out) == straight
    assert sorted(path.name for path in folder.iterdir()) == ["step-000003", "step-000006"]
