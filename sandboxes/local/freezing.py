"""Freezing a sandbox's state while it lives: which way is safe at this moment.

If nothing but idle shells runs, the writable layer is exchanged under them, which costs the same however much was
written. Otherwise a running process would keep its working directory in the old, frozen layer; then the processes are
stopped, the writable layer is copied, and they go on as if nothing had happened.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Mapping

from forkgym.sandboxes.base import Background
from forkgym.sandboxes.errors import ForkBusyError
from forkgym.sandboxes.local import launcher
from forkgym.sandboxes.local.disk import Disk
from forkgym.sandboxes.owner.commands import Peer
from forkgym.sandboxes.owner.reply import Refused, ask
from forkgym.sandboxes.owner.shell import PersistentShell

_STOP_PATIENCE = 1.0  # seconds until every process is stopped
_BUSY_PATIENCE = 0.3  # seconds; an ended child may hold a file open for a moment


class Freezer:
    """One freezing of one sandbox."""

    def __init__(self, peer: Peer, zygote: launcher.Zygote, disk: Disk, pid: int, pidfd: int) -> None:
        self._peer = peer
        self._zygote = zygote
        self._disk = disk
        self._pid = pid
        self._pidfd = pidfd
        self._idle: list[str] = []

    def freeze(self, shells: Mapping[str, PersistentShell], background: Background) -> tuple[str, ...]:
        """The chain of layers that holds the present state. Raises ``ForkBusyError``."""
        held = [shell for shell in shells.values() if shell.hold()]
        self._idle = [name for shell in held if (name := shell.session_name) is not None]
        moved = False
        try:
            before = self._disk.layers
            chain = self._quiet_freeze(background)
            moved = self._disk.layers != before
            return chain
        finally:
            for shell in held:
                shell.release(moved)

    def _quiet_freeze(self, background: Background) -> tuple[str, ...]:
        others = self._tell("quiesce", patience=_STOP_PATIENCE)["others"]
        try:
            if not others:
                return self._exchange(background)
            if background != "copy" and self._is_busy():
                if background == "fail":
                    raise ForkBusyError(
                        "a process in the sandbox writes to a file; wait, or fork with background='copy' or 'kill'"
                    )
                self._tell("kill_others")
                return self._exchange(background)
            return self._disk.copy(self._zygote)
        finally:
            self._tell("resume")

    def _exchange(self, background: Background) -> tuple[str, ...]:
        if self._disk.is_clean():
            return self._disk.layers
        deadline = time.monotonic() + _BUSY_PATIENCE
        while True:
            try:
                self._disk.switch(self._zygote, self._pid, self._pidfd)
                return self._disk.layers
            except Refused as error:
                if error.errno != errno.EBUSY:
                    raise
                if time.monotonic() > deadline:
                    # An idle shell itself holds a file open for writing, as after `exec 9>file`.
                    if background == "fail":
                        raise ForkBusyError("a shell holds a file open for writing; close it, or copy") from error
                    return self._disk.copy(self._zygote)
            time.sleep(0.005)

    def _is_busy(self) -> bool:
        try:
            ask(self._zygote.socket, {"op": "freeze"}, [self._pidfd])
        except Refused as error:
            if error.errno == errno.EBUSY:
                return True
            raise
        ask(self._zygote.socket, {"op": "thaw"}, [self._pidfd])
        return False

    def _tell(self, op: str, **details: object) -> dict[str, object]:
        return self._peer.ask({"op": op, "idle": self._idle, **details})[0]
