"""``TaskSet``: an ordered set of tasks that are built when asked for."""

from __future__ import annotations

import difflib
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import overload

from forkgym.tasks.base import Task
from forkgym.tasks.errors import TaskNotFoundError
from forkgym.tasks.folder import TaskFolder


@dataclass(frozen=True)
class Entry:
    """A task that can be built. ``folder`` is where it was read from; ``None`` for one made in memory."""

    id: str
    split: str
    build: Callable[[], Task]
    folder: TaskFolder | None = None


class TaskSet(Sequence[Task]):
    """Tasks in a stable order; ``tasks[3]``, ``tasks[:10]`` and ``tasks["swe/tiny/clamp/low"]`` all work.

    Nothing but ids and splits is known before a task is asked for. Random order comes from the seed given, never from
    global state.
    """

    def __init__(self, entries: Iterable[Entry]) -> None:
        self.entries = tuple(entries)
        self._by_id = {entry.id: entry for entry in self.entries}

    @property
    def ids(self) -> tuple[str, ...]:
        """All ids, in order."""
        return tuple(entry.id for entry in self.entries)

    @property
    def splits(self) -> tuple[str, ...]:
        """The split of each task, in order."""
        return tuple(entry.split for entry in self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[Task]:
        return (entry.build() for entry in self.entries)

    def __contains__(self, item: object) -> bool:
        return (item.id if isinstance(item, Task) else item) in self._by_id

    @overload
    def __getitem__(self, key: int | str) -> Task: ...
    @overload
    def __getitem__(self, key: slice) -> TaskSet: ...
    def __getitem__(self, key: int | str | slice) -> Task | TaskSet:
        if isinstance(key, slice):
            return TaskSet(self.entries[key])
        if isinstance(key, int):
            return self.entries[key].build()
        if key not in self._by_id:
            raise TaskNotFoundError(not_found(key, self.ids))
        return self._by_id[key].build()

    def only(self, split: str) -> TaskSet:
        """The tasks of one split."""
        return TaskSet(entry for entry in self.entries if entry.split == split)

    def sample(self, seed: int) -> Task:
        """One task; equal seeds give equal tasks, in every process. Raises ``TaskNotFoundError`` if there is none."""
        if not self.entries:
            raise TaskNotFoundError("cannot sample from an empty task set")
        return random.Random(seed).choice(self.entries).build()

    def shuffled(self, seed: int) -> TaskSet:
        """The same tasks in an order that depends on nothing but the seed."""
        entries = list(self.entries)
        random.Random(seed).shuffle(entries)
        return TaskSet(entries)

    def __repr__(self) -> str:
        return f"<TaskSet of {len(self)} tasks: {', '.join(self.ids[:3])}{', …' if len(self) > 3 else ''}>"


def not_found(wanted: str, known: Sequence[str]) -> str:
    """The message for an unknown id or pattern: near misses, or what there is."""
    near = difflib.get_close_matches(wanted, known, n=3, cutoff=0.5)
    if near:
        return f"no task {wanted!r}; near: {', '.join(near)}"
    some = f"{', '.join(known[:3])}, … ({len(known)} in all)" if known else "none"
    return f"no task {wanted!r}; known: {some}"
