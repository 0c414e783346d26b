"""From a task to a sandbox in which it can begin: files placed, set-up run, one snapshot kept per task."""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Generator
from dataclasses import dataclass, field

from forkgym.sandboxes.base import Backend, Mount, Sandbox, SandboxSpec, Snapshot
from forkgym.sandboxes.errors import SandboxError, SnapshotError
from forkgym.sandboxes.state import Owner
from forkgym.tasks import submission, tree
from forkgym.tasks.base import Submission, Task
from forkgym.tasks.errors import GradingError, SetupError
from forkgym.tasks.tree import Tree

SETUP_TIMEOUT = 600.0
BASE_CEILING = 2 << 30
_LABEL = "task-base"


def spec_of(task: Task, mounts: tuple[Mount, ...] = ()) -> SandboxSpec:
    """The sandbox that the task asks for, with ``mounts`` of whoever works in it."""
    return SandboxSpec(task.image, task.limits, task.network, task.user, task.workdir, task.env, mounts)


def prepare(box: Sandbox, task: Task) -> None:
    """Place the task's files and run its set-up commands in a fresh sandbox.

    Raises ``SetupError`` naming the command that failed, ``GradingError`` and ``SandboxError``.
    """
    submission.apply(box, Submission(task.start), task.workdir)
    for command in task.setup:
        result = box.exec(command, cwd=task.workdir, timeout=SETUP_TIMEOUT)
        if not result.ok:
            end = "timed out" if result.timed_out else f"exit code {result.exit_code}"
            output = (result.stdout + result.stderr).decode(errors="replace")[-1000:]
            raise SetupError(f"{task.id}: the set-up command {command!r} failed ({end}): {output}")


@dataclass
class _Base:
    lock: threading.Lock = field(default_factory=threading.Lock)
    snapshot: str = ""
    tree: Tree = field(default_factory=lambda: Tree({}, 0))
    users: int = 0


class Bases:
    """Clean sandboxes of one backend, each created from one snapshot per task digest. Safe to use from any thread.

    The ``keep`` tasks used last keep their snapshot; ``close``, or the end of the process, releases all.
    """

    def __init__(self, backend: Backend, keep: int = 256) -> None:
        if keep < 1:
            raise ValueError(f"keep must be at least 1, not {keep}")
        self.backend = backend
        self._keep = keep
        self._lock = threading.Lock()
        self._swept = False
        self._bases: OrderedDict[str, _Base] = OrderedDict()
        self.close = weakref.finalize(self, _release, backend, self._bases, os.getpid())

    def box(self, task: Task, mounts: tuple[Mount, ...] = ()) -> Sandbox:
        """A clean sandbox in which the task can begin. Raises ``GradingError`` (set-up) and ``SandboxError``."""
        spec = spec_of(task, mounts)
        with self._base(task) as base:
            snapshot = base.snapshot
            try:
                return self.backend.create(spec, snapshot=snapshot)
            except SnapshotError:  # somebody removed it; it can be made again
                with base.lock:
                    if base.snapshot == snapshot:
                        self._make(base, task)
                return self.backend.create(spec, snapshot=base.snapshot)

    def tree(self, task: Task) -> Tree:
        """What stands in the task's working directory at the start, without contents. Raises as ``box`` does."""
        with self._base(task) as base:
            return base.tree

    @contextlib.contextmanager
    def _base(self, task: Task) -> Generator[_Base]:
        """The base of this task, made if need be, and not dropped while it is used here."""
        with self._lock:
            base = self._bases.setdefault(task.digest, _Base())
            self._bases.move_to_end(task.digest)
            base.users += 1
        try:
            with base.lock:
                if not base.snapshot:
                    self._make(base, task)
            yield base
        finally:
            self._done(base)

    def _make(self, base: _Base, task: Task) -> None:
        self._sweep_once()
        with self.backend.create(spec_of(task)) as box:
            prepare(box, task)
            base.tree = _base_tree(box, task)
            base.snapshot = box.snapshot(f"{_LABEL} {Owner.current().tag()} {task.id}").id

    def _sweep_once(self) -> None:
        with self._lock:
            swept, self._swept = self._swept, True
        if not swept:
            sweep(self.backend)

    def _done(self, base: _Base) -> None:
        with self._lock:
            base.users -= 1
            idle = [key for key, other in self._bases.items() if other.users == 0]
            dropped = [self._bases.pop(key).snapshot for key in idle[: max(0, len(self._bases) - self._keep)]]
        _delete(self.backend, dropped)


def sweep(backend: Backend) -> None:
    """Remove the bases of processes that died without releasing them. Raises ``SandboxError``."""
    _delete(backend, [snapshot.id for snapshot in backend.snapshots() if _orphaned(snapshot)])


def _base_tree(box: Sandbox, task: Task) -> Tree:
    try:
        found = tree.read(box, task.workdir, BASE_CEILING)
    except (tree.TooLargeError, tree.HostileTreeError) as error:
        raise GradingError(f"{task.id}: its working directory cannot be compared later: {error}") from error
    slim = found.forget_data()
    return Tree(slim.nodes, slim.size, frozenset(_untracked(box, task.workdir)))


def _untracked(box: Sandbox, workdir: str) -> set[str]:
    """Files and directories (``build/``) outside the repository, if one stands there; asked before any agent came."""
    found: set[str] = set()
    for extra in ((), ("--directory",)):
        command = ("git", "-c", f"safe.directory={workdir}", "ls-files", "--others", "-z", *extra)
        if not box.exec(("/usr/bin/test", "-e", ".git"), cwd=workdir).ok:
            return set()
        result = box.exec(command, cwd=workdir, max_output=None)
        if result.ok:
            names = result.stdout.decode("utf-8", "surrogateescape").split("\0")
            found |= {name for name in names if name}
    return found


def _release(backend: Backend, bases: OrderedDict[str, _Base], owner: int) -> None:
    dropped = [base.snapshot for base in bases.values()]
    bases.clear()
    if os.getpid() == owner:  # a forked child owns none of them
        _delete(backend, dropped)


def _delete(backend: Backend, snapshots: list[str]) -> None:
    for snapshot in filter(None, snapshots):
        with contextlib.suppress(SandboxError):  # removed by somebody else, or to be swept by a later process
            backend.delete_snapshot(snapshot)


def _orphaned(snapshot: Snapshot) -> bool:
    parts = snapshot.label.split(" ")
    owner = Owner.from_tag(parts[1]) if parts[0] == _LABEL and len(parts) > 1 else None
    return owner is not None and not owner.alive()
