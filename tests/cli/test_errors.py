"""Bad input: two lines, the right exit code, no traceback, nothing started."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from forkgym.cli.output import report_error
from forkgym.errors import ConfigError
from forkgym.trainers.errors import InterruptedTraining

Run = Callable[..., Any]

WRONG = [
    (["nonsense"], "No such command 'nonsense'"),
    (["run", "--trns", "3"], "No such option"),
    (["run", "--turns", "0"], "--turns"),
    (["run", "swe/tiny/nope"], "no task 'swe/tiny/nope'"),
    (["run", "--agent", "orcale"], "did you mean 'oracle'?"),
    (["run", "--agent", "bash"], "needs a model"),
    (["run", "--agent", "oracle", "--model", "x"], "uses no model"),
    (["run", "--agent", "bash", "--model", "nope"], "unknown model 'nope'"),
    (["run", "--agent", "harness", "--model", "x"], "--harness mini-swe-agent"),
    (["run", "--agent-option", "prompt=x"], "agent 'oracle': unknown option 'prompt'"),
    (["run", "--agent", "bash", "--model", "x", "--agent-option", "compact_at=soon"], "valid integer"),
    (["run", "--agent", "bash", "--model", "x", "--agent-option", "compact_at=-1"], "equal to 1, not -1"),
    (["run", "--agent", "tools", "--model", "x", "--agent-option", "observation_chars=0"], "equal to 1, not 0"),
    (["eval", "--harness", "tools,bash", "--model", "x", "--agent-option", "compact_at=9"], "for one player"),
    (["run", "--sandbox", "lokal"], "did you mean 'local'?"),
    (["eval", "--split", "tset"], "no task of 'swe/tiny/*' is in the split 'tset'"),
    (["tasks", "show", "swe/tiny/nope"], "no task 'swe/tiny/nope'"),
    (["train", "grpo-tyni"], "did you mean 'grpo-tiny'?"),
    (["train", "grpo-tiny", "optimizer.learning_rate=1"], "optimizer"),
    (["train", "grpo-tiny", "steps"], "write key.sub=value"),
]


@pytest.mark.parametrize(("words", "what"), WRONG, ids=[" ".join(words) for words, _ in WRONG])
def test_wrong_input_is_two_lines_and_exit_code_2(forkgym: Run, tmp_path: Path, words: list[str], what: str) -> None:
    done = forkgym(*words)
    assert done.returncode == 2
    assert done.stdout == ""
    first, second = done.stderr.splitlines()
    assert first.startswith("error: ")
    assert what in first
    assert second.startswith("       ")
    assert list(tmp_path.iterdir()) == []


def test_machines_get_the_error_as_json(forkgym: Run) -> None:
    done = forkgym("tasks", "list", "nope", "--json")
    error = json.loads(done.stdout)["error"]
    assert done.returncode == 2
    assert error["type"] == "TaskNotFoundError"
    assert "no task 'nope'" in error["message"]
    assert "forkgym tasks list" in error["advice"]
    assert error["exit_code"] == 2


def test_debug_shows_where_it_came_from(forkgym: Run) -> None:
    for words in (["--debug", "run", "nope"], ["run", "nope", "--debug"]):
        done = forkgym(*words)
        assert done.returncode == 2
        assert "Traceback (most recent call last)" in done.stderr
        assert done.stderr.splitlines()[-2].startswith("error: no task 'nope'")


def test_a_mistake_of_ours_is_called_one(capfd: pytest.CaptureFixture[str]) -> None:
    code = report_error(ZeroDivisionError("division by zero"), debug=False, as_json=False)
    first, second = capfd.readouterr().err.splitlines()
    assert code == 1
    assert first == "error: ZeroDivisionError: division by zero"
    assert "--debug" in second


def test_an_interrupted_training_says_how_to_go_on(capfd: pytest.CaptureFixture[str]) -> None:
    code = report_error(InterruptedTraining("stopped after step 3"), debug=False, as_json=False)
    first, second = capfd.readouterr().err.splitlines()
    assert code == 130
    assert first == "error: stopped after step 3"
    assert "--resume" in second


def test_every_line_of_a_long_message_is_shown(capfd: pytest.CaptureFixture[str]) -> None:
    report_error(ConfigError("r.yaml:3: a\nr.yaml:9: b"), debug=False, as_json=False)
    assert capfd.readouterr().err.splitlines()[:2] == ["error: r.yaml:3: a", "       r.yaml:9: b"]


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    done = subprocess.run(
        f"{sys.executable} -P -m forkgym.cli.main tasks list --json | head -c 1; exit ${{PIPESTATUS[0]}}",
        shell=True, executable="/bin/bash", cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("[", "")
    assert done.returncode in (0, 1)


def test_no_command_shows_the_help(forkgym: Run) -> None:
    done = forkgym()
    assert done.returncode == 0
    for command in ("doctor", "tasks", "run", "eval", "train", "bench", "gc", "demo"):
        assert command in done.stdout
