"""The bundled library: enough of it, honest instructions, mistakes of one line, fresh proofs."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest

from forkgym import tasks
from forkgym.tasks import conformance
from forkgym.tasks.base import Task
from forkgym.tasks.loader import folders, library_root
from forkgym.tasks.workspace import Bases

TINY = tasks.load("swe/tiny/*")
EXAMPLE = re.compile(
    r"(?:.*\. )?(\w+\(.*\)) (?:returns (.+)|raises (\w+)), it should return (.+)\. Line (\d+) of (\w+\.py) should .+\."
)


def module_of(task: Task) -> str:
    return task.id.split("/")[2]


def run(source: bytes, call: str) -> Any:
    """What a call gives on our own library code; an exception is its class name."""
    space: dict[str, Any] = {}
    exec(source.decode(), space)
    try:
        return eval(call, space)
    except Exception as error:
        return type(error).__name__


def test_there_is_enough_of_it() -> None:
    splits = Counter(TINY.splits)
    assert splits["train"] >= 84
    assert splits["test"] >= 28
    modules = {split: {module_of(task) for task in TINY.only(split)} for split in ("train", "test")}
    assert len(modules["train"]) >= 14
    assert modules["train"] < modules["test"]
    unseen = [task for task in TINY if task.params.get("unseen_module")]
    assert {module_of(task) for task in unseen} == modules["test"] - modules["train"]
    assert Counter(module_of(task) for task in unseen) == {"coins": 4, "second": 4}


@pytest.mark.parametrize("module", sorted({module_of(task) for task in TINY}))
def test_each_instruction_tells_the_truth(module: str) -> None:
    for task in tasks.load(f"swe/tiny/{module}/*"):
        match = EXAMPLE.fullmatch(task.instruction)
        assert match, task.instruction
        call, wrong, raised, right, line, file = match.groups()
        assert file == f"{module}.py"
        assert run(task.files[file], call) == (eval(wrong) if wrong else raised)
        assert run(task.oracle[file] or b"", call) == eval(right)
        lines = zip(task.files[file].splitlines(), (task.oracle[file] or b"").splitlines(), strict=True)
        assert [number for number, (old, new) in enumerate(lines, 1) if old != new] == [int(line)]
        assert len(task.instruction) <= 200


def test_each_mistake_is_one_line() -> None:
    for task in TINY:
        ((path, right),) = task.oracle.items()
        broken, whole = task.files[path].splitlines(), (right or b"").splitlines()
        assert len(broken) == len(whole) <= 12
        assert sum(one != other for one, other in zip(broken, whole, strict=True)) == 1
        assert set(task.files) == {"README.md", path}


def test_ids_are_paths() -> None:
    root = library_root()
    assert [folder.id for folder in folders(root)] == [
        folder.path.relative_to(root).as_posix() for folder in folders(root)
    ]


def test_no_tasks_are_alike() -> None:
    assert len({task.digest for task in TINY}) == len(TINY)
    assert len({(task.files[f"{module_of(task)}.py"]) for task in TINY}) == len(TINY)


def test_conformance(bases: Bases) -> None:
    assert conformance.check(tasks.load("*"), bases, sample=0) == []
    assert conformance.check(TINY, bases, sample=2, seed=7) == []
