"""Proofs: good tasks pass; a wrong solution, an idle pass, a flake, a hang and a leak are each named."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from forkgym import tasks
from forkgym.sandboxes.errors import SandboxDeadError
from forkgym.tasks import conformance
from forkgym.tasks.base import Grading, Task
from forkgym.tasks.errors import GradingError, TaskFormatError
from forkgym.tasks.folder import TaskFolder
from forkgym.tasks.verify import Proof, prove, state_of, verify, write_proofs
from forkgym.tasks.workspace import Bases

Make = Callable[..., Task]
YAML = """\
schema: 1
id: own/half
family: swe
license: Apache-2.0
source: written for this test
grading: {runner: unittest, tests: [test_half.TestHalf.test_even]}
variants:
  - {id: a, split: train, instruction: Fix it., edits: [{file: half.py, find: "/", replace: "*"}]}
  - {id: b, split: train, instruction: Fix it., edits: [{file: half.py, find: "2", replace: "3"}]}
"""


def test_a_good_task(task: Task, bases: Bases) -> None:
    heard: list[Proof] = []
    (proof,) = verify([task], bases, repeats=2, progress=heard.append)
    assert proof == Proof("half", task.digest, 1.0, 0.0, 0.0, 2, fail_to_pass=task.grading.tests)
    assert proof.good
    assert heard == [proof]


def test_what_passes_without_the_solution_is_not_fail_to_pass(make: Make, bases: Bases) -> None:
    half = b"def half(n):\n    return n // 2\n"  # wrong for odd numbers alone
    proof = prove(make(files={"half.py": half}), bases, repeats=1)
    assert proof.fail_to_pass == ("test_half.TestHalf.test_odd",)
    assert proof.as_dict()["fail_to_pass"] == ["test_half.TestHalf.test_odd"]


def test_a_wrong_solution_and_an_idle_pass(make: Make, bases: Bases) -> None:
    right, wrong = b"def half(n):\n    return n / 2\n", b"def half(n):\n    return n // 2\n"
    proof = prove(make(files={"half.py": right}, oracle={"half.py": wrong}), bases, repeats=1)
    assert (proof.oracle, proof.nothing) == (0.0, 1.0)
    assert proof.problems == (
        "the solution fails test_half.TestHalf.test_odd: AssertionError: 3 != 3.5 (line 13)",
        "doing nothing scores 1",
    )


def test_leaks_are_found(make: Make, bases: Bases) -> None:
    task = make(
        setup=(
            "mkdir -p /tmp/cache && cp half.py /tmp/cache/",
            "echo 'SECRET = \"only-the-hidden-tests-say-this\"' > notes.txt",
            "printf 'def half(n):\\n    return n / 2\\n' > /tmp/cache/gold.py",
        )
    )
    assert set(prove(task, bases, repeats=1).problems) == {
        "a line of hidden file test_half.py in /work/notes.txt",
        "solution half.py in /tmp/cache/gold.py",
    }


def test_a_machine_that_fails_proves_nothing(task: Task, bases: Bases) -> None:
    class Dead(Bases):
        def box(self, task: Task) -> object:  # pyright: ignore[reportIncompatibleMethodOverride]
            raise SandboxDeadError("gone")

    with pytest.raises(GradingError, match="half: not proven, because grading failed: SandboxDeadError: gone"):
        prove(task, Dead(bases.backend))


def write_family(root: Path) -> Path:
    for name, text in {
        "task.yaml": YAML,
        "files/README.md": "half(n)\n",
        "hidden/test_half.py": "import unittest\nfrom half import half\n\n\nclass TestHalf(unittest.TestCase):\n"
        "    def test_even(self):\n        self.assertEqual(half(8), 4)\n",
        "hidden/solution/half.py": "def half(n):\n    return n / 2\n",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_proofs_are_stored_and_go_stale(tmp_path: Path, bases: Bases) -> None:
    found = tasks.load(write_family(tmp_path / "half"))
    assert [state_of(task) for task in found] == ["missing", "missing"]
    write_proofs(verify(found[:1], bases, repeats=1), found)
    assert [state_of(task) for task in found] == ["fresh", "missing"]
    (path,) = write_proofs(verify(found[1:], bases, repeats=1), found)
    first = path.read_bytes()
    assert json.loads(first)["tasks"]["own/half/a"] == {
        "digest": found[0].digest,
        "oracle": 1.0,
        "nothing": 0.0,
        "flake_rate": 0.0,
        "repeats": 1,
        "fail_to_pass": ["test_half.TestHalf.test_even"],
    }
    assert conformance.check(found, bases, sample=0) == []
    write_proofs(verify(found, bases, repeats=1), found)
    assert path.read_bytes() == first
    (tmp_path / "half/task.yaml").write_text(YAML.replace("Fix it.", "Mend it.", 1))
    again = tasks.load(tmp_path / "half")
    assert [state_of(task) for task in again] == ["stale", "fresh"]
    assert conformance.check(again, bases, sample=0) == [
        "own/half/a: its proof is stale; write it with: forkgym tasks verify own/half/a --write"
    ]


def test_a_loader_beside_a_writer_sees_a_whole_proof(tmp_path: Path) -> None:
    folder = TaskFolder(write_family(tmp_path / "half"), "half")
    reader = TaskFolder(folder.path, "half")
    written = threading.Event()

    def write() -> None:
        for turn in range(300):
            # Long enough that a write in place is seen half done.
            folder.write_proofs({"own/half/a": {"digest": str(turn) * 20000}})
        written.set()

    folder.write_proofs({"own/half/a": {"digest": "0"}})
    writer = threading.Thread(target=write)
    writer.start()
    while not written.is_set():
        assert TaskFolder(reader.path, "half").build(0).proof["digest"]
    writer.join()
    assert sorted(path.name for path in folder.path.iterdir()) == ["files", "hidden", "proof.json", "task.yaml"]


def test_a_proof_that_speaks_against_its_task_fails(task: Task) -> None:
    bad = replace(task, proof={"digest": task.digest, "oracle": 1.0, "nothing": 1.0, "flake_rate": 0.0})
    assert state_of(bad) == "failed"


def test_a_task_without_a_folder_cannot_be_stored(task: Task) -> None:
    with pytest.raises(TaskFormatError, match="half: comes from no folder"):
        write_proofs([Proof("half", task.digest, 1.0, 0.0, 0.0, 1)], tasks.load(task))


def test_one_task_in_two_splits_is_told(task: Task) -> None:
    twin = replace(task, id="twin", split="test")
    assert conformance.check_splits([task, twin]) == ["twin (test) and half (train) are the same task"]
    assert conformance.check_splits([task, replace(twin, grading=Grading("unittest", ("a.B.c",)))]) == []
