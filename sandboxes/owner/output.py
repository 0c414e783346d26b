"""What a command prints, kept to a bound."""

from __future__ import annotations

import os

_CHUNK = 1 << 16
_CHUNKS = 16  # then the caller looks at the clock; more than a pipe can hold


class Capture:
    """Head and tail of a stream: ``limit // 2`` bytes from its start, the rest of ``limit`` from its end.

    ``None`` keeps everything. Memory stays below three times the limit, however much is written.
    """

    def __init__(self, limit: int | None) -> None:
        self.total = 0
        self._limit = limit
        self._head_size = 0 if limit is None else limit // 2
        self._tail_size = 0 if limit is None else limit - self._head_size
        self._head = bytearray()
        self._tail = bytearray()

    def add(self, data: bytes) -> None:
        """Append ``data`` to the stream."""
        self.total += len(data)
        if self._limit is None:
            self._head += data
            return
        room = self._head_size - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 2 * self._tail_size:
            self._trim()

    def read_from(self, fd: int) -> bool:
        """Take what a non-blocking descriptor has now, within reason; False at its end."""
        for _ in range(_CHUNKS):
            try:
                data = os.read(fd, _CHUNK)
            except BlockingIOError:
                return True
            if not data:
                return False
            self.add(data)
        return True

    @property
    def truncated(self) -> bool:
        """True if bytes were dropped."""
        return self._limit is not None and self.total > self._limit

    def bytes(self) -> bytes:
        """What was kept."""
        self._trim()
        return bytes(self._head + self._tail)

    def _trim(self) -> None:
        if len(self._tail) > self._tail_size:
            del self._tail[: len(self._tail) - self._tail_size]
