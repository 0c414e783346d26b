"""The bundled repositories: several languages, honest instructions, mistakes that some of the hidden tests notice."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

import pytest

from forkgym import tasks
from forkgym.tasks.base import Task
from forkgym.tasks.verify import prove
from forkgym.tasks.workspace import Bases

TASKS = [task for task in tasks.load("swe/*") if not task.id.startswith("swe/tiny/")]
# What each runner needs on the machine, as a command.
NEEDS = {
    "pytest": ("python3", "-m", "pytest", "--version"),
    "node:test": ("node", "--version"),
    "ctest": ("cmake", "--version"),
    "go test": ("go", "version"),
}


def repository(task: Task) -> str:
    return task.id.split("/")[1]


def test_there_is_enough_of_it() -> None:
    assert len(TASKS) >= 24
    assert Counter(task.grading.runner for task in TASKS).keys() == NEEDS.keys()
    levels = Counter(task.params["level"] for task in TASKS)
    assert set(levels) == {"easy", "medium", "hard"}
    assert min(levels.values()) >= 6


def test_no_repository_is_in_both_splits() -> None:
    splits = {split: {repository(task) for task in TASKS if task.split == split} for split in ("train", "test")}
    assert len(splits["train"]) >= 4
    assert len(splits["test"]) >= 2
    assert not splits["train"] & splits["test"]


def test_each_task_names_the_tests_that_its_mistake_fails() -> None:
    for task in TASKS:
        fails = set(task.proof["fail_to_pass"])
        assert fails, task.id
        assert fails < set(task.grading.tests), task.id


def test_no_two_mistakes_are_found_by_the_same_tests_alone() -> None:
    for name in {repository(task) for task in TASKS}:
        fails = Counter(tuple(task.proof["fail_to_pass"]) for task in TASKS if repository(task) == name)
        assert max(fails.values()) == 1, name


def test_repositories_are_whole() -> None:
    for task in TASKS:
        assert "README.md" in task.files, task.id
        assert any(re.search(r"(^|/)tests?/|_test\.go$", path) for path in task.files), f"{task.id}: no visible test"
        assert len(task.files) >= 5, task.id


def test_every_hidden_test_file_is_listed_and_none_shown() -> None:
    for task in TASKS:
        listed = "\n".join(task.grading.tests)
        for path in task.hidden:
            stem = path.rpartition("/")[2].rpartition(".")[0]
            if re.match(r"test_", stem) or stem.endswith(".test"):
                assert stem in listed, f"{task.id}: {path}"


def test_an_instruction_tells_the_symptom_and_not_the_place() -> None:
    """Nor does it quote a line of the solution."""
    for task in TASKS:
        for path, right in task.oracle.items():
            assert path not in task.instruction, f"{task.id} names {path}"
            new = set((right or b"").splitlines()) - set(task.files[path].splitlines())
            quoted = [line for line in new if len(line.strip()) >= 20 and line.strip() in task.instruction.encode()]
            assert not quoted, task.id
        assert 100 <= len(task.instruction) <= 1200, task.id


def test_no_two_tasks_are_alike() -> None:
    assert len({task.digest for task in TASKS}) == len(TASKS)
    assert len({task.instruction for task in TASKS}) == len(TASKS)


@pytest.mark.parametrize("runner", NEEDS)
def test_one_of_each_language_is_proven_again(runner: str, has_program: Callable[..., str], bases: Bases) -> None:
    has_program(*NEEDS[runner])
    task = next(task for task in TASKS if task.grading.runner == runner)
    proof = prove(task, bases, repeats=1)
    assert proof.problems == ()
    assert list(proof.fail_to_pass) == task.proof["fail_to_pass"]
