"""Where an environment gets its tasks, sandboxes and verdicts from: the rooms below it, behind one object."""

from __future__ import annotations

import contextlib
import functools
import os
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from forkgym import sandboxes
from forkgym import tasks as task_room
from forkgym.errors import ConfigError
from forkgym.registry import unknown
from forkgym.sandboxes.base import Backend, Limits, Mount, Sandbox
from forkgym.sandboxes.errors import SandboxError
from forkgym.sandboxes.limits import parse_limits
from forkgym.tasks.base import Submission, Task, Verdict
from forkgym.tasks.grading import grade, judge
from forkgym.tasks.loader import Spec
from forkgym.tasks.submission import capture
from forkgym.tasks.taskset import TaskSet
from forkgym.tasks.workspace import Bases, spec_of


class World:
    """A task set and a backend. Refuses at construction what the backend cannot do.

    Environments of one process that name the same backend share its prepared tasks. ``mounts`` are for the agent's
    sandbox alone: no grader ever sees them.
    """

    def __init__(
        self,
        tasks: Spec,
        split: str | None,
        sandbox: str | Backend,
        limits: Limits | Mapping[str, object] | None,
        mounts: Sequence[Mount] = (),
    ) -> None:
        self.tasks: TaskSet = task_room.load(tasks, split=split)
        if not len(self.tasks):
            raise ConfigError("the task set is empty")
        if limits is not None and not isinstance(limits, Limits | Mapping):  # pyright: ignore
            raise ConfigError(f'limits is a mapping such as {{"memory": "512M"}} or Limits, got {limits!r}')
        named = isinstance(sandbox, str)
        self._bases, self._images = _shared(sandbox, os.getpid()) if named else _bases(sandbox)
        self._limits = limits if limits is None or isinstance(limits, Limits) else parse_limits(limits)
        self._mounts = tuple(mounts)
        self._common_tools: frozenset[str] | None = None
        self._checked(self.tasks[0])

    def common_tools(self) -> tuple[str, ...]:
        """The tools that the first task names; from now on a task that names others is refused."""
        names = self.tasks[0].tools
        self._common_tools = frozenset(names)
        return names

    def task(self, task_id: str) -> Task:
        """The task of this id. Raises ``TaskNotFoundError``."""
        return self._checked(self.tasks[task_id])

    def draw(self, rng: np.random.Generator) -> Task:
        """A task of the set, uniformly."""
        return self._checked(self.tasks[int(rng.integers(len(self.tasks)))])

    def prepare(self, task: Task) -> Sandbox:
        """A sandbox in which the task can begin."""
        return self._bases.box(task, self._mounts)

    def restore(self, task: Task, snapshot: str) -> Sandbox:
        """A sandbox in the state of this snapshot."""
        return self._bases.backend.create(spec_of(task, self._mounts), snapshot)

    def forget(self, snapshot: str) -> None:
        """Delete a snapshot; one that is gone already is no error."""
        with contextlib.suppress(SandboxError):
            self._bases.backend.delete_snapshot(snapshot)

    def submission(self, box: Sandbox, task: Task) -> Submission:
        """What was changed in ``box``, read on a fork that is thrown away."""
        with box.fork(1)[0] as branch:
            return capture(branch, task, self._bases.tree(task))

    def grade(self, task: Task, submission: Submission) -> Verdict:
        """What it is worth as a submission, judged in a clean sandbox; an empty one is worth 0."""
        return grade(task, submission, self._bases.box)

    def judge(self, task: Task, submission: Submission) -> Verdict:
        """What the hidden tests say of this state, changed or not; as ``grade`` does if it cannot be read."""
        return (grade if submission.malformed else judge)(task, submission, self._bases.box)

    def _checked(self, task: Task) -> Task:
        if self._images is not None and task.image not in self._images:
            self._images = self._bases.backend.capabilities().images or ()  # some may have been built since
            if task.image not in self._images:
                raise ConfigError(
                    f"task {task.id!r}: {unknown('image', task.image, list(self._images))} on backend "
                    f"{self._bases.backend.name!r}; `forkgym images build` makes more, also of a recipe that came with "
                    "tasks (images/NAME.yaml beside them)"
                )
        if self._common_tools not in (None, frozenset(task.tools)):
            raise ConfigError(
                f"task {task.id!r} names the tools {', '.join(task.tools)}, but this environment was made for "
                f"{', '.join(sorted(self._common_tools or ()))}; give tools= or keep such tasks apart"
            )
        for mount in self._mounts:
            if f"{posixpath.normpath(mount.target)}/".startswith(f"{posixpath.normpath(task.workdir)}/"):
                raise ConfigError(
                    f"task {task.id!r}: a mount at {mount.target} lies in its working directory {task.workdir} and "
                    "would be handed in with the work; mount it elsewhere"
                )
        return task if self._limits is None else replace(task, limits=self._limits)


class Holdings:
    """What an environment must give back: its sandbox, and the snapshots it took. It does not know the environment."""

    def __init__(self, world: World, box: Sandbox | None) -> None:
        self.world = world
        self.box = box
        self.snapshots: list[str] = []

    def close_box(self) -> None:
        """Remove the sandbox. Idempotent."""
        box, self.box = self.box, None
        if box is not None:
            box.close()

    def close(self) -> None:
        """Remove everything. Idempotent."""
        self.close_box()
        while self.snapshots:
            self.world.forget(self.snapshots.pop())


@functools.cache
def _shared(name: str, process: int) -> tuple[Bases, tuple[str, ...] | None]:
    """One per process: its environments share prepared tasks, and no child uses its parent's locks."""
    return _bases(sandboxes.backend(name))


def _bases(backend: Backend) -> tuple[Bases, tuple[str, ...] | None]:
    """The prepared tasks of a backend, and the images it has."""
    can = backend.capabilities()
    if not can.fork:
        raise ConfigError(f"backend {backend.name!r} cannot fork here, and grading works on a fork")
    return Bases(backend), can.images
