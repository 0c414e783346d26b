"""The command line of the trainers: exit codes, and errors without a traceback."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from forkgym.trainers.command import command
from forkgym.trainers.errors import InterruptedTraining
from forkgym.trainers.events import EpisodeEnded, OnEvent, RunEnded, StepEnded
from forkgym.trainers.recipe import GrpoRecipe
from forkgym.trainers.recipe_file import load_grpo


def quiet(recipe: GrpoRecipe, *, resume: bool, on_event: OnEvent | None) -> None:
    assert on_event is not None
    on_event(StepEnded(1, {"reward": 0.25, "turns": 3.0}))
    on_event(RunEnded(1, "done", Path("x")))


def interrupted(recipe: GrpoRecipe, *, resume: bool, on_event: OnEvent | None) -> None:
    raise InterruptedTraining("stopped after step 3")


def call(run: Any, arguments: Sequence[str]) -> int:
    return command("text", load_grpo, run, arguments)


def test_a_good_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(quiet, ["--recipe", "grpo-tiny", "steps=1"]) == 0
    assert capsys.readouterr().out == "step 1: reward 0.25\nended after step 1 (done)\n"


def test_a_wrong_recipe_is_two_lines_at_most(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(quiet, ["--recipe", "grpo-tiny", "optimizer.rl=1"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("ConfigError: override 'optimizer.rl=1': unknown key 'rl' in optimizer")
    assert len(error.splitlines()) == 1


def test_ctrl_c_exits_with_130(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(interrupted, ["--recipe", "grpo-tiny"]) == 130
    assert "stopped after step 3" in capsys.readouterr().err


def test_events_that_say_nothing_print_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    def run(recipe: GrpoRecipe, *, resume: bool, on_event: OnEvent | None) -> None:
        assert on_event is not None
        on_event(EpisodeEnded(1, None, 1))  # type: ignore[arg-type]

    assert call(run, ["--recipe", "grpo-tiny"]) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("module", ["grpo", "sft"])
def test_without_torch_the_command_says_what_to_install(module: str) -> None:
    hidden, name = "import runpy, sys; sys.modules['torch'] = None", f"forkgym.trainers.{module}"
    code = f"{hidden}; runpy.run_module({name!r}, run_name='__main__')"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 2
    assert done.stderr == "MissingExtraError: training needs the package 'torch': pip install 'forkgym[train]'\n"
    code = f"{hidden}; import {name}"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=100, check=False)
    assert done.stderr.splitlines()[-1].startswith("forkgym.errors.MissingExtraError: training needs")
