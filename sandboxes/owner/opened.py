"""A file or directory of a sandbox that its first process has opened: held here by its descriptor, or there."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from forkgym.sandboxes.errors import SandboxDeadError
from forkgym.sandboxes.guest import wire
from forkgym.sandboxes.owner.reply import Reply

CHUNK = 1 << 20
_CHILD = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
Entry = tuple[str, int, int]  # name, mode, size


class Opened(Protocol):
    """``mode`` and ``size`` are those of the moment of opening. Failures are ``OSError``."""

    mode: int
    size: int

    def read(self, size: int) -> bytes:
        """At most ``size`` bytes from where the last reading ended; empty at the end."""
        ...

    def write(self, data: bytes) -> None:
        """Append all of ``data`` to what was written before."""
        ...

    def entries(self) -> list[Entry]:
        """What a directory holds; links are not followed."""
        ...

    def child(self, name: str, directory: bool) -> Opened:
        """Open one of ``entries`` for reading, unless it has become a link."""
        ...

    def close(self) -> None:
        """Pair it with the opening."""
        ...


class Asking(Protocol):
    """The part of a sandbox that is needed here."""

    def request(self, message: Mapping[str, object], fds: Sequence[int] = ()) -> Reply: ...

    def ask(self, message: Mapping[str, object], fds: Sequence[int] = ()) -> tuple[dict[str, Any], list[int]]: ...


def opened(peer: Asking, answer: Mapping[str, Any], fds: list[int]) -> Opened:
    """What an answer to a request to open something brings."""
    return Distant(peer, answer, fds) if "handle" in answer else Descriptor(fds[0])


class Descriptor:
    """See ``Opened``; through a descriptor that was handed out."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        status = os.fstat(fd)
        self.mode, self.size = status.st_mode, status.st_size

    def read(self, size: int) -> bytes:
        """See ``Opened.read``."""
        return os.read(self._fd, size)

    def write(self, data: bytes) -> None:
        """See ``Opened.write``."""
        view = memoryview(data)
        while view:
            view = view[os.write(self._fd, view[:CHUNK]) :]

    def entries(self) -> list[Entry]:
        """See ``Opened.entries``."""
        found: list[Entry] = []
        for name in os.listdir(self._fd):
            with contextlib.suppress(FileNotFoundError):
                status = os.stat(name, dir_fd=self._fd, follow_symlinks=False)
                found.append((name, status.st_mode, status.st_size))
        return found

    def child(self, name: str, directory: bool) -> Descriptor:
        """See ``Opened.child``."""
        return Descriptor(os.open(name, _child_flags(directory), dir_fd=self._fd))

    def close(self) -> None:
        """See ``Opened.close``."""
        os.close(self._fd)


class Distant:
    """See ``Opened``; by requests, to an end that keeps it open and may have sent its first bytes along."""

    def __init__(self, peer: Asking, answer: Mapping[str, Any], fds: list[int]) -> None:
        self._peer = peer
        self._handle: int = answer["handle"]
        self.mode: int = answer["mode"]
        self.size: int = answer["size"]
        self._ahead = _taken(fds)

    def read(self, size: int) -> bytes:
        """See ``Opened.read``."""
        if not self._ahead:
            return self._ask("file_read", size=min(size, CHUNK))
        data, self._ahead = self._ahead[:size], self._ahead[size:]
        return data

    def write(self, data: bytes) -> None:
        """See ``Opened.write``."""
        view = memoryview(data)
        for start in range(0, len(view), CHUNK):
            file = wire.memory_file(view[start : start + CHUNK])
            try:
                self._peer.ask({"op": "file_write", "handle": self._handle}, [file])
            finally:
                os.close(file)

    def entries(self) -> list[Entry]:
        """See ``Opened.entries``."""
        return [(name, mode, size) for name, mode, size in json.loads(self._ask("file_list"))]

    def child(self, name: str, directory: bool) -> Distant:
        """See ``Opened.child``."""
        request = {"op": "file_child", "handle": self._handle, "name": name, "flags": _child_flags(directory)}
        return Distant(self._peer, *self._peer.ask(request))

    def close(self) -> None:
        """See ``Opened.close``. Nobody waits for it."""
        with contextlib.suppress(SandboxDeadError):
            self._peer.request({"op": "file_close", "handle": self._handle}).close()

    def _ask(self, op: str, **details: object) -> bytes:
        return _taken(self._peer.ask({"op": op, "handle": self._handle, **details})[1])


def _child_flags(directory: bool) -> int:
    return _CHILD | (os.O_DIRECTORY if directory else 0)


def _taken(fds: list[int]) -> bytes:
    """The content of the memory file that came with an answer, if one did."""
    parts: list[bytes] = []
    for fd in fds:
        with open(fd, "rb") as file:
            parts.append(file.read())
    return b"".join(parts)
