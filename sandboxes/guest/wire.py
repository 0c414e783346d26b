"""Messages between the client, the zygote and each sandbox's first process: JSON and descriptors over a socket.

One ``SOCK_SEQPACKET`` datagram is one message. A large body travels in a memory file. Each request carries its own
reply socket, so answers cannot be mixed up, threads need no lock, and a dead peer shows as end of file.
"""

from __future__ import annotations

import array
import json
import os
import socket
from collections.abc import Mapping, Sequence
from typing import Any

MAX_FDS = 250  # the kernel takes 253
_INLINE = 32 << 10


def pair() -> tuple[socket.socket, socket.socket]:
    """Two connected ends, closed on exec."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def send(sock: socket.socket, message: Mapping[str, object], fds: Sequence[int] = ()) -> None:
    """Send one message. Raises ``OSError`` if the peer is gone."""
    body = json.dumps(message).encode()
    if len(body) <= _INLINE:
        _send(sock, b"j" + body, fds)
        return
    file = memory_file(body)
    try:
        _send(sock, b"m", [file, *fds])
    finally:
        os.close(file)


def receive(sock: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """The next message and its descriptors; ``None`` at end of file."""
    data, ancillary, _, _ = sock.recvmsg(_INLINE + 64, socket.CMSG_SPACE(MAX_FDS * 4), socket.MSG_CMSG_CLOEXEC)
    received = array.array("i")
    for _, _, payload in ancillary:
        received.frombytes(payload[: len(payload) // 4 * 4])
    fds = received.tolist()
    if not data:
        return None
    if data[:1] == b"j":
        return json.loads(data[1:]), fds
    with open(fds[0], "rb") as file:
        return json.load(file), fds[1:]


def memory_file(data: bytes | bytearray | memoryview) -> int:
    """A descriptor of an anonymous file that holds ``data``, at its start."""
    fd = os.memfd_create("data", os.MFD_CLOEXEC)
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def close_all(fds: Sequence[int]) -> None:
    """Close every descriptor."""
    for fd in fds:
        os.close(fd)


def error(problem: BaseException) -> dict[str, Any]:
    """A failure as a message."""
    if isinstance(problem, OSError) and problem.errno is not None:
        name = f"{os.fsdecode(problem.filename)}: " if isinstance(problem.filename, str | bytes) else ""
        return {"error": f"{name}{problem.strerror}", "errno": problem.errno}
    return {"error": f"{type(problem).__name__}: {problem}", "errno": None}


def _send(sock: socket.socket, data: bytes, fds: Sequence[int]) -> None:
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    sock.sendmsg([data], rights)
