"""What a container has used, as the files of its control groups say that its first process opened."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

from forkgym.sandboxes.base import Usage


class Meter:
    """Holds the files open, so that a reading is one call of the kernel. What this kernel does not tell is ``None``."""

    def __init__(self, names: Sequence[str], files: Sequence[int]) -> None:
        self._files = dict(zip(names, files, strict=True))

    def oom_kills(self) -> int:
        """How many processes were killed for lack of memory so far."""
        words = self._words("memory.events") or self._words("memory.oom_control")
        return int(words[words.index("oom_kill") + 1]) if "oom_kill" in words else 0

    def usage(self) -> Usage:
        """Everything but the disk."""
        cpu, stat = self._number("cpuacct.usage"), self._words("cpu.stat")
        seconds = cpu / 1e9 if cpu is not None else int(stat[stat.index("usage_usec") + 1]) / 1e6 if stat else None
        peak = self._number("memory.peak")
        return Usage(
            cpu_seconds=seconds,
            peak_memory=peak if peak is not None else self._number("memory.max_usage_in_bytes"),
            pids=self._number("pids.current"),
        )

    def close(self) -> None:
        """Close the files. Idempotent."""
        while self._files:
            os.close(self._files.popitem()[1])

    def _number(self, name: str) -> int | None:
        words = self._words(name)
        return int(words[0]) if words else None

    def _words(self, name: str) -> list[str]:
        return self._text(name).split()

    def _text(self, name: str) -> str:
        try:
            return os.pread(self._files[name], 4096, 0).decode()
        except (KeyError, OSError):  # the group goes with its container
            return ""


class DistantMeter(Meter):
    """The same where the files are read inside. ``notes``: what was told last; ``look`` asks for all of it."""

    def __init__(self, notes: Mapping[str, str], look: Callable[[], Mapping[str, str]]) -> None:
        super().__init__((), ())
        self._notes = notes
        self._look = look

    def usage(self) -> Usage:
        """See ``Meter.usage``."""
        self._notes = {**self._notes, **self._look()}
        return super().usage()

    def _text(self, name: str) -> str:
        return self._notes.get(name, "")
