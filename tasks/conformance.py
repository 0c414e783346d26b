"""What holds for every bundled task; a third party can ask the same of its own task folders.

problems = check(load("path/to/tasks"), bases)
"""

from __future__ import annotations

from collections.abc import Iterable

from forkgym.tasks.base import Task
from forkgym.tasks.taskset import TaskSet
from forkgym.tasks.verify import prove, state_of
from forkgym.tasks.workspace import Bases


def check(tasks: TaskSet, bases: Bases, sample: int = 3, seed: int = 0) -> list[str]:
    """One sentence for each thing that is wrong; none is good.

    Every task is read and must have a fresh proof; ``sample`` of them, drawn by ``seed``, are proven again.
    Raises ``GradingError`` if the machine failed, and ``TaskFormatError``.
    """
    problems = [problem for task in tasks for problem in check_text(task)]
    problems += check_splits(tasks)
    for task in tasks.shuffled(seed)[:sample]:
        proof = prove(task, bases, repeats=1)
        problems += [f"{task.id}: {problem}" for problem in proof.problems]
    return problems


def check_text(task: Task) -> list[str]:
    """What can be said of one task without a sandbox."""
    found: list[str] = []
    if (state := state_of(task)) != "fresh":
        found.append(f"{task.id}: its proof is {state}; write it with: forkgym tasks verify {task.id} --write")
    if not task.oracle:
        found.append(f"{task.id}: has no reference solution")
    for path, data in task.oracle.items():
        if task.files.get(path) == data:
            found.append(f"{task.id}: the solution's {path} is what the agent starts with")
    if not task.license or not task.source:
        found.append(f"{task.id}: names no licence or no source")
    return found


def check_splits(tasks: Iterable[Task]) -> list[str]:
    """No two tasks of different splits may be the same to an agent."""
    seen: dict[str, Task] = {}
    found: list[str] = []
    for task in tasks:
        other = seen.setdefault(task.digest, task)
        if other.split != task.split:
            found.append(f"{task.id} ({task.split}) and {other.id} ({other.split}) are the same task")
    return found
