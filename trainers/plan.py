"""Which episodes a run plays, as a pure function of the seed and a cursor, so that a resumed run plays the same."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass

from forkgym.agents.collect import Job
from forkgym.errors import ConfigError


@dataclass(frozen=True)
class Slot:
    """One group of the order: the ``visit``-th time its task comes up, counted from 0."""

    task: str
    visit: int

    @property
    def key(self) -> str:
        return f"{self.task}#{self.visit}"


def seed_of(*parts: object) -> int:
    """A 31-bit seed that depends on nothing but ``parts``."""
    text = "/".join(map(str, parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1


class TaskOrder:
    """All tasks in a new shuffled order on every pass, for ever."""

    def __init__(self, tasks: Sequence[str], seed: int) -> None:
        if not tasks:
            raise ConfigError("there is no task to train on; check env.tasks and env.split")
        self._tasks = sorted(tasks)
        self._seed = seed

    def slots(self, cursor: int, count: int) -> list[Slot]:
        """``count`` slots from position ``cursor`` on."""
        return [self._slot(position) for position in range(cursor, cursor + count)]

    def _slot(self, position: int) -> Slot:
        visit, index = divmod(position, len(self._tasks))
        order = list(self._tasks)
        random.Random(seed_of(self._seed, "order", visit)).shuffle(order)
        return Slot(order[index], visit)


def group_jobs(slots: Sequence[Slot], group_size: int, seed: int) -> list[Job]:
    """The episodes of some groups. An episode's id is its group's key and its number: the unit of the ledger."""
    return [
        Job(slot.task, seed_of(seed, "train", slot.key, member), slot.key, f"{slot.key}.{member}")
        for slot in slots
        for member in range(group_size)
    ]


def eval_jobs(tasks: Sequence[str], episodes_per_task: int, seed: int, step: int) -> list[Job]:
    """The same tasks and seeds at every evaluation; only the ids tell the step."""
    return [
        Job(task, seed_of(seed, "eval", task, k), f"{task}#eval", f"{task}#eval{step}.{k}")
        for task in tasks
        for k in range(episodes_per_task)
    ]
