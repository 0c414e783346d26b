"""Bases: one snapshot per task, made once, bounded in number, made again when lost, gone at the end."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from forkgym.sandboxes import backend
from forkgym.sandboxes.base import Sandbox, SandboxSpec, Snapshot
from forkgym.sandboxes.local.backend import LocalBackend
from forkgym.tasks.base import Task
from forkgym.tasks.errors import GradingError
from forkgym.tasks.workspace import Bases

Make = Callable[..., Task]


class Counting(LocalBackend):
    """The local backend, counting what is created from nothing and from a snapshot."""

    def __init__(self) -> None:
        self.fresh = self.restored = 0
        self.deleted: list[str] = []

    def create(self, spec: SandboxSpec, snapshot: str | None = None) -> Any:
        if snapshot is None:
            self.fresh += 1
        else:
            self.restored += 1
        return super().create(spec, snapshot)

    def delete_snapshot(self, snapshot_id: str) -> None:
        self.deleted.append(snapshot_id)
        super().delete_snapshot(snapshot_id)


def bases_of(tasks: list[Task]) -> list[Snapshot]:
    ids = tuple(f" {task.id}" for task in tasks)
    return [found for found in backend("local").snapshots() if found.label.endswith(ids)]


def test_set_up_runs_once_and_each_box_is_its_own(make: Make) -> None:
    task = make(id="once", setup=("date +%s%N > stamp",), files={"a/b.txt": b"x\r\n"})
    counting = Counting()
    bases = Bases(counting)
    with bases.box(task) as one, bases.box(task) as two:
        assert one.read_file("/work/a/b.txt") == b"x\r\n"
        assert one.read_file("/work/stamp") == two.read_file("/work/stamp")
        one.write_file("/work/a/b.txt", b"changed")
        assert two.read_file("/work/a/b.txt") == b"x\r\n"
    assert (counting.fresh, counting.restored) == (1, 2)
    assert set(bases.tree(task).nodes) == {"a/b.txt", "stamp"}
    bases.close()
    assert bases_of([task]) == []


def test_many_threads_make_one_base(make: Make) -> None:
    task = make(id="many")
    counting = Counting()
    bases = Bases(counting)
    boxes: list[Sandbox] = []
    threads = [threading.Thread(target=lambda: boxes.append(bases.box(task))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (counting.fresh, counting.restored, len(boxes)) == (1, 6, 6)
    for box in boxes:
        box.close()
    bases.close()


def test_only_the_last_ones_are_kept(make: Make) -> None:
    tasks = [make(id=f"kept{number}", instruction=f"Task {number}.") for number in range(4)]
    counting = Counting()
    bases = Bases(counting, keep=2)
    for task in (*tasks, tasks[3], tasks[0]):
        bases.box(task).close()
    assert counting.fresh == 5
    assert {found.label.rpartition(" ")[2] for found in bases_of(tasks)} == {"kept3", "kept0"}
    bases.close()
    assert bases_of(tasks) == []
    assert len(counting.deleted) == 5


def test_a_lost_snapshot_is_made_again(make: Make) -> None:
    task = make(id="lost")
    counting = Counting()
    bases = Bases(counting)
    bases.box(task).close()
    (snapshot,) = bases_of([task])
    backend("local").delete_snapshot(snapshot.id)
    with bases.box(task) as box:
        assert box.read_file("/work/half.py") == task.files["half.py"]
    assert counting.fresh == 2
    bases.close()


def test_a_set_up_that_fails_names_its_command_and_leaves_nothing(make: Make) -> None:
    task = make(id="failing", setup=("true", "echo no such thing >&2; false"))
    bases = Bases(backend("local"))
    for _ in range(2):
        with pytest.raises(GradingError, match=r"failing: the set-up command .* failed \(exit code 1\): no such thing"):
            bases.box(task)
    assert bases_of([task]) == []
    bases.close()


PROCESS = """
import os, signal, sys
from forkgym.sandboxes import backend
from forkgym.tasks import load
from forkgym.tasks.workspace import Bases
from dataclasses import replace
bases = Bases(backend("local"))
task = replace(load("swe/tiny/clamp/upper-bound")[0], id=sys.argv[1], instruction=sys.argv[1])
bases.box(task).close()
assert any(found.label.endswith(sys.argv[1]) for found in backend("local").snapshots())
if sys.argv[2] == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_end_of_the_process_releases_them_and_a_killed_one_is_swept_up(make: Make) -> None:
    for name, end in (("ending", "exit"), ("killed", "kill")):
        subprocess.run([sys.executable, "-c", PROCESS, name, end], check=end == "exit")
    assert bases_of([make(id="ending")]) == []
    assert len(bases_of([make(id="killed")])) == 1
    bases = Bases(backend("local"))
    bases.box(make(id="next")).close()
    assert bases_of([make(id="killed")]) == []
    bases.close()
