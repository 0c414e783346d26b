"""Sandboxes whose root file system is an overlay over frozen layers: how their state is kept and shared."""

from __future__ import annotations

import contextlib
import errno
import signal
import threading
from abc import abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from forkgym.sandboxes.base import Background, ExecResult, Sandbox, SandboxSpec, Snapshot
from forkgym.sandboxes.errors import SandboxDeadError, SandboxError, SandboxLimitError, SnapshotError
from forkgym.sandboxes.guest import processes
from forkgym.sandboxes.local import snapshots
from forkgym.sandboxes.local.disk import Disk
from forkgym.sandboxes.local.freezing import Freezer
from forkgym.sandboxes.local.launcher import Zygote
from forkgym.sandboxes.local.snapshots import Frozen
from forkgym.sandboxes.owner.checks import check_fork, check_text
from forkgym.sandboxes.owner.sandbox import ServedSandbox
from forkgym.sandboxes.owner.shell import ShellState

_T = TypeVar("_T")


class LayeredSandbox(ServedSandbox):
    """See ``forkgym.sandboxes.base.Sandbox``."""

    _root: Path  # the state directory
    _zygote: Zygote
    _disk: Disk
    _pid: int  # of the first process
    _pidfd: int

    def __init__(self, id: str, spec: SandboxSpec, lineage: tuple[str, ...], shells: Mapping[str, ShellState]) -> None:
        super().__init__(id, spec, lineage, shells)
        self._state_lock = threading.Lock()

    def snapshot(self, label: str = "") -> Snapshot:
        """See ``Sandbox.snapshot``."""
        check_text("label", label)
        with self._frozen("copy") as frozen:
            return snapshots.save(self._root, frozen, label, self.backend)

    def fork(self, n: int = 1, *, background: Background = "copy") -> list[Sandbox]:
        """See ``Sandbox.fork``."""
        check_fork(n, background)
        with self._frozen(background) as frozen:
            return list(self._siblings(frozen, n))

    @contextlib.contextmanager
    def written(self) -> Generator[list[Path]]:
        """Layer directories with what was written over the image, topmost first; they stay for the block."""
        with self._frozen("kill") as frozen:
            yield [self._root / "layers" / layer for layer in frozen.layers]

    @contextlib.contextmanager
    def _frozen(self, background: Background) -> Generator[Frozen]:
        """The present state, kept on disk at least until the end of the block."""
        self._require_alive()
        with self._lock:
            shells = dict(self._shells)
        with self._state_lock:
            freezer = Freezer(self, self._zygote, self._disk, self._pid, self._pidfd)
            try:
                chain = _shielded(lambda: freezer.freeze(shells, background))
            except OSError as error:
                raise self._not_frozen(error) from error
            try:
                yield Frozen(chain, self._shell_states(), (*self.lineage, self.id), self.spec.image)
            except SnapshotError as error:
                if not self._closed:
                    raise
                raise SandboxDeadError(f"sandbox {self.id} was closed meanwhile") from error
            finally:
                if not self._closed:
                    self._disk.settle()
                    self._disk.merge_if_long(self._zygote)

    def _disk_used(self) -> int | None:
        return self._disk.used()

    def _not_frozen(self, error: OSError) -> BaseException:
        if isinstance(error, SandboxError):
            return error
        if self._closed:
            return SandboxDeadError(f"sandbox {self.id} was closed meanwhile")
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return SandboxLimitError(f"no space left in {self._root} for the state of sandbox {self.id}: {error}")
        return SandboxError(f"the state of sandbox {self.id} could not be frozen: {error}")

    def _judge(self, result: ExecResult) -> ExecResult:
        end = processes.now()
        # Who began or ended within a killing may have been spared by it; whoever was not died of the signal.
        killed = result.exit_code == -signal.SIGKILL and self._disk.was_overrun(end - result.duration, end)
        return replace(result, disk_full=killed)

    def _death(self, message: str) -> SandboxDeadError:
        cause = self._disk.cause()
        return SandboxDeadError(f"sandbox {self.id} was ended: {cause}" if cause else message)

    @abstractmethod
    def _siblings(self, frozen: Frozen, count: int) -> Sequence[Sandbox]:
        """``count`` sandboxes that start in this state; all of them or, on failure, none."""


def _shielded(action: Callable[[], _T]) -> _T:
    """Do something that must not stop half-way: Ctrl-C is raised after it."""
    if threading.current_thread() is not threading.main_thread():
        return action()
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(action)
        try:
            return future.result()
        except KeyboardInterrupt:
            wait([future])
            raise
