"""Processes cloned before anybody asks for one: to become sandboxes, or to do something aside from the zygote."""

from __future__ import annotations

import os
import select
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from forkgym.sandboxes.guest import syscalls, wire
from forkgym.sandboxes.local import mounts

NAMESPACES = (
    syscalls.CLONE_NEWNS | syscalls.CLONE_NEWPID | syscalls.CLONE_NEWNET | syscalls.CLONE_NEWIPC | syscalls.CLONE_NEWUTS
)
_MOST = 8
# Each sandbox has its own ids, so that limits the kernel counts by user do not couple them. The region lies above
# those that distributions and login services hand out.
_FIRST_BASE, _RANGE, _RANGES = 0x40000000, 65536, 0x3000


@dataclass(frozen=True)
class Blank:
    """A process that waits at the other end of ``orders`` to be told what to become, and ends if that is closed."""

    pid: int
    pidfd: int
    orders: socket.socket
    ids: mounts.Ids

    def alive(self) -> bool:
        """False once the process has ended."""
        poll = select.poll()
        poll.register(self.pidfd, select.POLLIN)
        return not poll.poll(0)

    def close(self) -> None:
        """Let go of it."""
        self.orders.close()
        os.close(self.pidfd)
        if self.ids.userns >= 0:
            os.close(self.ids.userns)


class Stock:
    """As many blanks as were wanted at the same time of late, up to eight. ``become(orders)`` is what each one runs.

    ``flags`` are those of clone. With a user namespace of its own, each has ids of its own.
    """

    def __init__(self, flags: int, become: Callable[[socket.socket], None]) -> None:
        self._flags = flags
        self._become = become
        self._blanks = deque[Blank]()
        self._wanted = 1
        self._next_range = int.from_bytes(os.urandom(2)) % _RANGES  # so that two trainers rarely share one

    @property
    def short(self) -> bool:
        """True if there should be more."""
        return len(self._blanks) < self._wanted

    def add(self) -> None:
        """Make one more."""
        self._blanks.append(self._clone())

    def take(self) -> Blank:
        """One that lives, made now if none is ready. The caller closes it."""
        while self._blanks:
            blank = self._blanks.popleft()
            if blank.alive():
                return blank
            blank.close()
        self._wanted = min(2 * self._wanted, _MOST)
        return self._clone()

    def close(self) -> None:
        """Let go of all; they end unless another process holds them."""
        while self._blanks:
            self._blanks.pop().close()

    def _clone(self) -> Blank:
        orders, theirs = wire.pair()
        pid = syscalls.clone_process(self._flags)
        if pid == 0:
            try:
                self._become(theirs)
            finally:
                os._exit(1)
        theirs.close()
        try:
            return Blank(pid, os.pidfd_open(pid), orders, self._map_ids(pid))
        except BaseException:
            orders.close()
            raise

    def _map_ids(self, pid: int) -> mounts.Ids:
        if not self._flags & syscalls.CLONE_NEWUSER:
            return mounts.Ids()
        base = _FIRST_BASE + self._next_range * _RANGE
        self._next_range = (self._next_range + 1) % _RANGES
        for name in ("uid_map", "gid_map"):
            with open(f"/proc/{pid}/{name}", "w") as file:
                file.write(f"0 {base} {_RANGE}")
        return mounts.Ids(base, os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC))
