"""Saved runs, acted and graded again."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from forkgym.agents.records import read_episodes
from forkgym.cli.recorded import find
from forkgym.errors import ConfigError
from forkgym.tasks.loader import library_root

Run = Callable[..., Any]

TASK = "swe/tiny/clamp/upper-bound"


def spoil(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.fixture
def run(forkgym: Run, tmp_path: Path) -> Path:
    """A run of two episodes, one solved."""
    assert forkgym("eval", "--tasks", TASK, "--out", "run", "-n", "2").returncode == 0
    return tmp_path / "run"


def test_replay_of_a_run_of_one_episode_and_of_a_spoilt_one(forkgym: Run, run: Path) -> None:
    done = forkgym("replay", "run")
    assert done.returncode == 0
    assert sorted(done.stdout.splitlines()) == [f"✓ {TASK}#{k}: identical, 2 steps" for k in (0, 1)]
    spoil(run / "episodes.jsonl", '"observation":"[no', '"observation":"one line more\\n[no')
    for words in (["run", f"{TASK}#1"], [f"run/episodes.jsonl#{TASK}#1"]):
        done = forkgym("replay", *words)
        assert done.returncode == 1
        assert f"✗ {TASK}#1: differs at turn 0 (observation)" in done.stdout
        assert "recorded: one line more" in done.stdout
    found = json.loads(forkgym("replay", "run", f"{TASK}#0", "--json").stdout)
    assert [(f["identical"], f["divergence"]["what"]) for f in found] == [(False, "observation")]
    assert forkgym("replay", "run", "--ignore", r"(one line more\n)?\[no output\]").returncode == 0


def test_rescore_shows_and_writes_what_a_changed_task_changes(forkgym: Run, run: Path, tmp_path: Path) -> None:
    done = forkgym("rescore", "run")
    assert (done.returncode, done.stdout) == (0, "2 of 2 episodes graded again, 0 rewards changed\n")
    shutil.copytree(library_root() / "swe" / "tiny" / "clamp", tmp_path / "mine")
    spoil(next((tmp_path / "mine").glob("hidden/*.py")), "10)", "11)")
    done = forkgym("rescore", "run", "--tasks", "mine", "--write")
    assert done.returncode == 1
    assert "2 of 2 episodes graded again, 2 rewards changed" in done.stdout
    new, old = (read_episodes(run / name).episodes for name in ("episodes.rescored.jsonl", "episodes.jsonl"))
    assert [(e.id, e.reward) for e in new] == [(e.id, 0.0) for e in old]
    assert {e.reward for e in old} == {1.0}
    again = forkgym("rescore", "run", "--write")
    assert again.returncode == 2
    assert "episodes.rescored.jsonl is there already" in again.stderr
    found = json.loads(forkgym("rescore", "run/episodes.jsonl", "--json").stdout)
    assert found == {"episodes": 2, "how": {"submission": 2}, "changed": [], "left": [], "written": []}


def test_wrong_names_are_refused(forkgym: Run, run: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for words, message in (
        (["replay", "empty"], "empty holds no records of episodes"),
        (["rescore", "nowhere"], "nowhere holds no records of episodes"),
        (["replay", "run", f"{TASK}#7"], f"unknown episode '{TASK}#7'; did you mean"),
        (["rescore", "run", "--reward", "resolve"], "unknown reward 'resolve'; did you mean 'resolved'"),
    ):
        done = forkgym(*words)
        assert done.returncode == 2
        assert message in done.stderr


def test_a_training_run_is_graded_with_the_reward_of_its_recipe(forkgym: Run, run: Path) -> None:
    """Its folder has a recipe and a file per step."""
    (run / "episodes").mkdir()
    (run / "episodes.jsonl").rename(run / "episodes" / "train-000001.jsonl")
    (run / "eval.json").unlink()
    (run / "metrics.jsonl").write_text("{}\n")
    recipe = {
        "env": {"tasks": "swe/tiny/*", "options": {"sandbox": "local", "max_observation_chars": 4000}},
        "reward": {"name": None, "weights": {"resolved": 0.25}, "gate": None},
    }
    (run / "recipe.json").write_text(json.dumps(recipe))
    for name in ("run", "run/episodes/train-000001.jsonl"):
        found = json.loads(forkgym("rescore", name, "--json").stdout)
        assert [(c["before"], c["after"]) for c in found["changed"]] == [(1.0, 0.25)] * 2
        assert forkgym("replay", name).returncode == 0


@pytest.mark.parametrize(
    ("name", "written", "message"),
    [
        ("eval.json", '{"tasks": "swe/tiny/*"}', "eval.json: 'sandbox' is missing, where a str belongs"),
        ("eval.json", '{"tasks": 3, "sandbox": "local"}', "eval.json: 'tasks' is of type int, where a str belongs"),
        ("eval.json", "[]", "eval.json: the file is of type list, where a dict belongs"),
        ("eval.json", '{"tasks": "swe', "cannot read run/eval.json"),
        ("recipe.json", '{"env": []}', "recipe.json: 'env' is of type list, where a dict belongs"),
        (
            "episodes.jsonl",
            '{"schema_version": 2, "id',
            "no whole record in run/episodes.jsonl: their only line is torn",
        ),
        ("episodes.jsonl", "", "no whole record in run/episodes.jsonl: they are empty"),
        ("episodes.jsonl", '{"schema\n{}\n', "run/episodes.jsonl line 1: not JSON"),
    ],
)
def test_a_damaged_run_says_what_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, written: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "episodes.jsonl").touch()
    (tmp_path / "run" / name).write_text(written)
    with pytest.raises(ConfigError, match=re.escape(message)):
        find(Path("run")).episodes()


def test_a_torn_last_line_is_told_and_the_others_are_used(forkgym: Run, run: Path) -> None:
    with (run / "episodes.jsonl").open("a") as file:
        file.write('{"schema_version": 2, "id')
    done = forkgym("rescore", "run")
    assert (done.returncode, done.stdout) == (0, "2 of 2 episodes graded again, 0 rewards changed\n")
    assert "its last line is torn" in done.stderr


def test_records_without_a_task_and_without_actions_are_left(forkgym: Run, run: Path, tmp_path: Path) -> None:
    """What `forkgym gateway` wrote belongs to no task; a harness acted by itself. Neither keeps others from it."""
    first, second = (json.loads(line) for line in (run / "episodes.jsonl").read_text().splitlines())
    strange = {**first, "task": "", "harness": "gateway", "verdict": None, "reward": None, "reason": "closed"}
    second["steps"][0]["action"] = {"calls": []}
    (tmp_path / "gateway.jsonl").write_text(json.dumps(strange) + "\n")
    (tmp_path / "mixed.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in (first, strange | {"id": "s"})))
    (tmp_path / "program.jsonl").write_text(json.dumps(second) + "\n")
    for command in ("rescore", "replay"):
        done = forkgym(command, "gateway.jsonl")
        assert (done.returncode, done.stdout) == (2, "")
        assert "no record here belongs to a task" in done.stderr
    done = forkgym("rescore", "mixed.jsonl")
    assert (done.returncode, done.stdout) == (1, "1 of 2 episodes graded again, 0 rewards changed\n")
    assert "1 left as they were: it belongs to no task" in done.stderr
    done = forkgym("replay", "mixed.jsonl")
    assert (done.returncode, done.stdout) == (0, f"✓ {first['id']}: identical, 2 steps\n")
    assert "1 left out: it belongs to no task (it was recorded by 'gateway')" in done.stderr
    done = forkgym("replay", "program.jsonl")
    assert done.returncode == 2
    assert "turn 0 is no action of the environment" in done.stderr
