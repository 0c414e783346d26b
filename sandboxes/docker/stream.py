"""A connection to a container's standard streams, as the daemon carries it: bytes out, and bytes in under headers."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import struct
from typing import Any

_CHUNK = 1 << 18
_HEADER = struct.Struct("!BxxxI")  # which stream, and how many bytes of it follow
_STDERR = 2
_KEPT = 2000  # bytes of standard error


class Stream:
    """Never waits. ``complaint`` holds what came last on standard error.

    Takes over what the docker SDK calls the socket of an attached container or of a process in one.
    """

    def __init__(self, attached: Any) -> None:
        self._response: Any = attached._response
        if isinstance(attached, ssl.SSLSocket):
            self._socket: socket.socket = attached
        else:
            self._socket = socket.socket(fileno=os.dup(attached.fileno()))
            self._response.close()
        self._socket.setblocking(False)
        self.complaint = b""
        self._header = b""
        self._kind, self._left = 0, 0

    def fileno(self) -> int:
        """For poll; -1 once closed."""
        return self._socket.fileno()

    def send(self, data: memoryview) -> int:
        """Send what fits now. Raises ``OSError``."""
        try:
            return self._socket.send(data)
        except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            return 0

    def receive(self) -> bytes | None:
        """What the process wrote to standard output; empty if it has not arrived, ``None`` at the end."""
        try:
            data = self._socket.recv(_CHUNK)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return b""
        if not data:
            return None
        return self._unpack(data) + (self._rest() if isinstance(self._socket, ssl.SSLSocket) else b"")

    def close(self) -> None:
        """Close our end of it."""
        with contextlib.suppress(OSError):
            self._socket.close()
            self._response.close()  # which under TLS holds it open too

    def _rest(self) -> bytes:
        """What TLS has decoded already, of which poll knows nothing."""
        parts: list[bytes] = []
        while isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            parts.append(self._unpack(self._socket.recv(_CHUNK)))
        return b"".join(parts)

    def _unpack(self, data: bytes) -> bytes:
        parts: list[bytes] = []
        while data:
            if not self._left:
                wanted = _HEADER.size - len(self._header)
                self._header, data = self._header + data[:wanted], data[wanted:]
                if len(self._header) == _HEADER.size:
                    self._kind, self._left = _HEADER.unpack(self._header)
                    self._header = b""
                continue
            piece, data = data[: self._left], data[self._left :]
            self._left -= len(piece)
            if self._kind == _STDERR:
                self.complaint = (self.complaint + piece)[-_KEPT:]
            else:
                parts.append(piece)
        return b"".join(parts)
