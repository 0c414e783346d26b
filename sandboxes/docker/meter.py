"""What a container has used, read from its control groups as they are mounted inside it."""

from __future__ import annotations

import contextlib
import os

from forkgym.sandboxes.base import Usage
from forkgym.sandboxes.owner.commands import Peer
from forkgym.sandboxes.owner.reply import Refused

_TOP = "/sys/fs/cgroup"
# By what they tell: the file of version 2, then that of version 1.
_FILES = {
    "events": ("memory.events", "memory/memory.oom_control"),
    "memory": ("memory.peak", "memory/memory.max_usage_in_bytes"),
    "cpu": ("cpu.stat", "cpuacct/cpuacct.usage"),
    "pids": ("pids.current", "pids/pids.current"),
}


class Meter:
    """Holds the files open, so that a reading is one call of the kernel. What this kernel does not tell is ``None``."""

    def __init__(self) -> None:
        self._files: dict[str, int] = {}

    def open(self, peer: Peer) -> None:
        """Have the first process open them."""
        for what, names in _FILES.items():
            for name in names:
                message = {"op": "open", "path": f"{_TOP}/{name}", "flags": os.O_RDONLY, "mode": 0, "parents": False}
                with contextlib.suppress(Refused):
                    self._files[what] = peer.ask(message)[1][0]
                    break

    def oom_kills(self) -> int:
        """How many processes were killed for lack of memory so far."""
        words = self._read("events").split()
        return int(words[words.index("oom_kill") + 1]) if "oom_kill" in words else 0

    def usage(self) -> Usage:
        """Everything but the disk."""
        cpu, memory, pids = (self._read(what).split() for what in ("cpu", "memory", "pids"))
        seconds = None
        if cpu:
            seconds = int(cpu[0]) / 1e9 if len(cpu) == 1 else int(cpu[cpu.index("usage_usec") + 1]) / 1e6
        return Usage(seconds, int(memory[0]) if memory else None, int(pids[0]) if pids else None)

    def close(self) -> None:
        """Close the files. Idempotent."""
        while self._files:
            os.close(self._files.popitem()[1])

    def _read(self, what: str) -> str:
        fd = self._files.get(what, -1)
        try:
            return os.pread(fd, 4096, 0).decode() if fd >= 0 else ""
        except OSError:
            return ""  # the group goes with its container
