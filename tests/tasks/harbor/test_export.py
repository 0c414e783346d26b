"""Tasks of ours as Harbor directories: the same verdicts on the way out and back."""

from __future__ import annotations

import subprocess
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from forkgym import tasks
from forkgym.sandboxes.base import Limits
from forkgym.tasks.base import Budget, Grading, Task
from forkgym.tasks.errors import TaskFormatError
from forkgym.tasks.importers.harbor_export import toml
from forkgym.tasks.verify import prove
from forkgym.tasks.workspace import Bases

TaskMaker = Callable[..., Task]
HIDDEN = b"""\
import os
import unittest

from twice import double


class T(unittest.TestCase):
    def test_x(self):
        self.assertEqual(double(4), 8)
        self.assertFalse(os.path.exists("old.py"))
"""


@pytest.fixture
def ours() -> TaskMaker:
    """``ours(**fields)``: double() is broken, and old.py is in the way."""

    def make(**changes: Any) -> Task:
        values: dict[str, Any] = {
            "id": "mine/twice-1",
            "family": "swe",
            "instruction": 'double(4) returns 6: it should be 8. Remove old.py. Say "done" \\ é.',
            "split": "train",
            "files": {"twice.py": b"def double(n):\n    return n + 2\n", "old.py": b"", "run.sh": b"#!/bin/sh\n"},
            "hidden": {"test_twice.py": HIDDEN},
            "oracle": {"twice.py": b"def double(n):\n    return n * 2\n", "old.py": None},
            "grading": Grading("unittest-suite", ("test_twice.T.test_x",), 20.0),
            "limits": Limits(memory=512 << 20, cpu=0.5),
            "budget": Budget(seconds=90.0),
            "executables": ("run.sh",),
            "license": "Apache-2.0",
            "source": "ours",
        }
        return Task(**(values | changes))

    return make


def test_out_and_back_gives_the_same_verdicts(ours: TaskMaker, bases: Bases, tmp_path: Path) -> None:
    task = ours()
    assert (prove(task, bases, 1).oracle, prove(task, bases, 1).nothing) == (1.0, 0.0)
    back = tasks.from_harbor(tasks.to_harbor(task, tmp_path / "out"), image="host")[0]
    proof = prove(back, bases, 1)
    assert (proof.oracle, proof.nothing, proof.problems) == (1.0, 0.0, ())
    same = ("id", "family", "split", "instruction", "files", "executables", "workdir", "license", "source")
    assert {name: getattr(back, name) for name in same} == {name: getattr(task, name) for name in same}
    assert (back.limits.memory, back.limits.cpu) == (512 << 20, 0.5)
    assert (back.budget.seconds, back.grading.timeout) == (90.0, 20.0)


def test_what_is_written(ours: TaskMaker, tmp_path: Path) -> None:
    root = tasks.to_harbor(ours(), tmp_path / "out", base="acme/base")
    config = tomllib.loads((root / "task.toml").read_text())
    assert config["environment"] == {
        "network_mode": "no-network", "workdir": "/work", "cpus": 0.5, "memory_mb": 512, "storage_mb": 1024,
    }  # fmt: skip
    assert config["verifier"] == {"timeout_sec": 20.0, "environment_mode": "separate"}
    assert (config["artifacts"], config["task"]["name"]) == (["/work"], "forkgym/mine-twice-1")
    assert (
        root / "environment/Dockerfile"
    ).read_text() == "FROM acme/base\nWORKDIR /work\nCOPY files/ ./\nRUN chmod +x run.sh\n"
    assert (root / "tests/test.sh").stat().st_mode & 0o111
    for script in ("tests/test.sh", "solution/solve.sh"):
        subprocess.run(("bash", "-n", str(root / script)), check=True)


def test_hidden_files_stay_out_of_the_environment(ours: TaskMaker, tmp_path: Path) -> None:
    root = tasks.to_harbor(ours(), tmp_path / "out")
    seen = b"".join(path.read_bytes() for path in (root / "environment").rglob("*") if path.is_file())
    assert b"assertEqual" not in seen
    assert b"n * 2" not in seen


def test_a_changed_instruction_is_kept_on_the_way_back(make: Callable[..., Path], tmp_path: Path) -> None:
    task = replace(tasks.from_harbor(make(), image="host")[0], instruction="Other words.")
    back = tasks.to_harbor(task, tmp_path / "back")
    assert (back / "instruction.md").read_text() == "Other words.\n"
    with pytest.raises(TaskFormatError, match="came from Harbor with an environment of its own; leave base out"):
        tasks.to_harbor(task, tmp_path / "other", base="x")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"grading": Grading("node:test", ("a",))}, "runner 'node:test' has no form in Harbor"),
        ({"solve": "true"}, "has no form in Harbor"),
        ({"links": {"a": "b"}}, "holds symbolic links"),
        ({"setup": ("a\nb",)}, "a command of several lines has no form in a Dockerfile"),
    ],
)
def test_what_has_no_form_there_is_refused_and_nothing_is_written(
    ours: TaskMaker, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(TaskFormatError, match=message):
        tasks.to_harbor(ours(**changes), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_toml_is_read_back_as_it_was_written() -> None:
    data: dict[str, Any] = {
        "text": 'a "b" \\ \n\t\x7f\x01 é 😀',
        "list": ["x", 1, 2.5, True],
        "table": {"odd key.1": False, "deep": {"n": -1, "": "empty"}},
    }
    assert tomllib.loads(toml(data)) == data
