"""Files that the relay keeps open for its owner, who reads and writes them by requests.

The methods are named as the requests are. ``content`` is what came along with one; what they return goes back with it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
from collections.abc import Iterator
from typing import Any

from forkgym.sandboxes.guest import frames, wire

_PIECE = 1 << 20  # bytes of a file in one answer
_FIRST_PIECE = 1 << 16  # bytes that come along when a file is opened
Answer = tuple[dict[str, Any], bytes]


class KeptFiles:
    """Open files, known to the owner by the numbers of their descriptors."""

    def __init__(self) -> None:
        self._open: set[int] = set()

    def keep(self, fd: int, flags: int, content: Iterator[bytes]) -> Answer:
        """Take over what was opened. ``content`` is written to it, or its first bytes go back."""
        try:
            for data in content:
                write_all(fd, data)
            status = os.fstat(fd)
            reading = stat.S_ISREG(status.st_mode) and not flags & (os.O_WRONLY | os.O_RDWR)
            first = os.read(fd, _FIRST_PIECE) if reading else b""
        except OSError as error:
            os.close(fd)
            return wire.error(error), b""
        self._open.add(fd)
        return {"handle": fd, "mode": status.st_mode, "size": status.st_size}, first

    def file_read(self, message: dict[str, Any], content: Iterator[bytes]) -> Answer:
        """At most ``size`` bytes from where the last reading ended."""
        return {"ok": True}, os.read(self._known(message), min(message["size"], _PIECE))

    def file_write(self, message: dict[str, Any], content: Iterator[bytes]) -> Answer:
        """Append ``content`` to what was written before."""
        for data in content:
            write_all(self._known(message), data)
        return {"ok": True}, b""

    def file_list(self, message: dict[str, Any], content: Iterator[bytes]) -> Answer:
        """Name, mode and size of all that a directory holds."""
        fd, entries = self._known(message), list[tuple[str, int, int]]()
        for name in os.listdir(fd):
            with contextlib.suppress(FileNotFoundError):
                status = os.stat(name, dir_fd=fd, follow_symlinks=False)
                entries.append((name, status.st_mode, status.st_size))
        return {"ok": True}, json.dumps(entries).encode()

    def file_child(self, message: dict[str, Any], content: Iterator[bytes]) -> Answer:
        """Open what a directory holds."""
        fd = os.open(message["name"], message["flags"], dir_fd=self._known(message))
        return self.keep(fd, message["flags"], content)

    def file_close(self, message: dict[str, Any], content: Iterator[bytes]) -> Answer:
        """Let go of one."""
        os.close(self._known(message))
        self._open.remove(message["handle"])
        return {"ok": True}, b""

    def _known(self, message: dict[str, Any]) -> int:
        if message["handle"] not in self._open:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return message["handle"]


def content_of(file: int | None) -> Iterator[bytes]:
    """What a memory file holds; nothing if there is none."""
    start = 0
    while file is not None and (data := os.pread(file, frames.CHUNK, start)):
        yield data
        start += len(data)


def write_all(fd: int, data: bytes) -> None:
    """Write all of ``data``."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
