"""Plain data between the trusted runner and the process that holds submitted code: JSON frames, never pickle.

A value is ``None``, a bool, or ``[tag, content]``. Types are exact: a subclass is refused, so that an object with an
``__eq__`` of its own cannot reach an assertion.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Callable
from typing import Any, cast

MAX_FRAME = 1 << 20  # unittest explains a difference in quadratic time
POLL = 0.1
_HEADER = struct.Struct(">I")


class NotPlain(TypeError):
    """A value is no plain data."""


class Broken(Exception):
    """The other side closed, sent too much, or sent what is no frame."""


def encode(value: Any) -> Any:
    """``value`` as JSON. Raises ``NotPlain`` for anything but plain data."""
    kind = cast("type[object]", type(value))
    if value is None or kind is bool:
        return value
    if kind is int:
        return ["i", hex(value)]  # no limit on digits, unlike decimal
    if kind is float:
        return ["f", value.hex()]
    if kind is str:
        return ["s", value]
    if kind is bytes:
        return ["b", value.hex()]
    if kind is list or kind is tuple:
        return ["l" if kind is list else "t", [encode(item) for item in value]]
    if kind is set or kind is frozenset:
        return ["S" if kind is set else "F", [encode(item) for item in value]]
    if kind is dict:
        return ["d", [[encode(key), encode(item)] for key, item in value.items()]]
    raise NotPlain(f"{kind.__name__} is no plain data (None, bool, int, float, str, bytes, list, tuple, set, dict)")


def decode(value: Any) -> Any:
    """The value back, with its exact type. Raises ``Broken`` for what ``encode`` never writes."""
    if value is None or value is True or value is False:
        return value
    try:
        tag, content = value
        if tag == "i":
            return int(content, 16)
        if tag == "f":
            return float.fromhex(content)
        if tag == "s" and type(content) is str:
            return content
        if tag == "b":
            return bytes.fromhex(content)
        if tag == "d":
            return {decode(key): decode(item) for key, item in content}
        return {"l": list, "t": tuple, "S": set, "F": frozenset}[tag](decode(item) for item in content)
    except Broken:
        raise
    except (TypeError, ValueError, KeyError, OverflowError, RecursionError) as error:
        raise Broken(f"not plain data: {type(error).__name__}") from error


def send(channel: socket.socket, message: dict[str, Any]) -> None:
    """Write one frame. Raises ``Broken`` if it is too large."""
    data = json.dumps(message).encode()
    if len(data) > MAX_FRAME:
        raise Broken(f"{len(data)} bytes of data, at most {MAX_FRAME}")
    channel.sendall(_HEADER.pack(len(data)) + data)


def receive(channel: socket.socket, late: Callable[[], bool] | None = None) -> dict[str, Any]:
    """Read one frame, asking ``late`` while nothing comes. Raises ``Broken``, and ``TimeoutError`` if it is late."""
    channel.settimeout(None if late is None else POLL)
    (size,) = _HEADER.unpack(_exactly(channel, _HEADER.size, late))
    if size > MAX_FRAME:
        raise Broken(f"{size} bytes of data, at most {MAX_FRAME}")
    try:
        message = json.loads(_exactly(channel, size, late))
    except (ValueError, RecursionError) as error:
        raise Broken("not a frame") from error
    if type(message) is not dict:
        raise Broken("not a frame")
    return message  # pyright: ignore[reportUnknownVariableType]


def _exactly(channel: socket.socket, size: int, late: Callable[[], bool] | None) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        if late is not None and late():
            raise TimeoutError("no answer in time")
        try:
            part = channel.recv(min(size - len(parts), 1 << 16))
        except TimeoutError:
            continue
        except OSError as error:
            raise Broken(f"the channel failed: {error}") from error
        if not part:
            raise Broken("the process ended")
        parts += part
    return bytes(parts)
