"""Frames: what a sandbox's owner and its first process say to each other when one stream of bytes is all they share.

``guest.relay`` is the end inside, ``docker.bridge`` the owner's. A frame belongs to a request, by number, and to one of
the request's descriptors, its part:

    REQUEST  owner  a message of ``guest.wire`` as JSON, with the kind of each of its descriptors
    FILE     both   content of a regular file that goes with the next REQUEST or REPLY of that number
    DATA     both   bytes of a pipe; EOF after the last ones
    CREDIT   both   so many more bytes may be sent: of the request's pipes, or of the pipe by which it is fed
    SHUT     owner  nobody reads this pipe any more
    DRAIN    owner  nobody reads it, but who writes into it should go on
    REPLY    guest  a message of ``guest.wire`` as JSON; END after the last one of the request
    NOTE     guest  what the accounts of the container said last, as JSON
    PING     owner  to be answered by PONG
    QUIT     owner  kill everything and end
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

REQUEST, FILE, DATA, EOF, CREDIT, SHUT, DRAIN, REPLY, END, NOTE, PING, PONG, QUIT = range(13)
CHUNK = 1 << 16  # bytes of content in one frame
WINDOW = 1 << 18  # bytes of a request's pipes that may be under way
FEED = 1 << 16  # bytes that may be under way into a pipe
OVERDRAFT = 1 << 24  # what its pipes hold when a command ends goes out at once, and a pipe can be made large
LARGEST = 64 << 20  # bytes of one frame: a shell's report and the list of a huge directory go in one piece
_HEADER = struct.Struct("!IBIB")


class Frame(NamedTuple):
    """One frame; ``body`` is content, JSON, or a number."""

    kind: int
    request: int
    part: int
    body: bytes


class BrokenStreamError(ValueError):
    """What arrived cannot have been sent by the other end."""


def encode(kind: int, request: int = 0, part: int = 0, body: bytes = b"") -> bytes:
    """A frame as bytes."""
    return _HEADER.pack(len(body), kind, request, part) + body


def number(count: int) -> bytes:
    """The body of CREDIT."""
    return count.to_bytes(4)


class Parser:
    """Cuts a stream of bytes into frames."""

    def __init__(self) -> None:
        self._left = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that ``data`` completes. Raises ``BrokenStreamError``."""
        self._left += data
        start = 0
        while len(self._left) - start >= _HEADER.size:
            size, kind, request, part = _HEADER.unpack_from(self._left, start)
            if kind > QUIT or size > LARGEST:
                raise BrokenStreamError(f"a frame of kind {kind} and {size} bytes")
            end = start + _HEADER.size + size
            if len(self._left) < end:
                break
            yield Frame(kind, request, part, bytes(self._left[start + _HEADER.size : end]))
            start = end
        del self._left[:start]
