"""Asking a sandbox's first process, or the zygote, and waiting for the answer."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from forkgym.sandboxes.errors import SandboxDeadError, SandboxError, SandboxTimeoutError
from forkgym.sandboxes.guest import wire

PATIENCE = 30.0  # seconds to wait for an answer that takes milliseconds


class Refused(OSError):
    """The other side tried and failed; ``strerror`` names the thing as well."""


class Reply:
    """The answers to one request, on a socket of its own. ``dead`` makes the error for a peer that is gone."""

    def __init__(
        self,
        peer: socket.socket,
        message: Mapping[str, object],
        fds: Sequence[int] = (),
        dead: Callable[[str], SandboxDeadError] = SandboxDeadError,
    ) -> None:
        self._dead = dead
        self._sock, theirs = wire.pair()
        try:
            wire.send(peer, message, [theirs.fileno(), *fds])
        except OSError as error:
            self._sock.close()
            raise dead("the sandbox is gone") from error
        finally:
            theirs.close()

    def fileno(self) -> int:
        """For poll."""
        return self._sock.fileno()

    def next(self, patience: float = PATIENCE) -> tuple[dict[str, Any], list[int]]:
        """The next answer. Raises ``SandboxDeadError``, ``SandboxTimeoutError``, or ``Refused``."""
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        if not poll.poll(patience * 1000):
            raise SandboxTimeoutError(f"no answer from the sandbox within {patience:g} s")
        received = wire.receive(self._sock)
        if received is None:
            raise self._dead("the sandbox died before it answered")
        message, fds = received
        if "error" in message:
            if message["errno"] is None:
                raise SandboxError(message["error"])
            raise Refused(message["errno"], message["error"])
        return message, fds

    def close(self) -> None:
        """Give up on further answers."""
        self._sock.close()


def ask(
    peer: socket.socket,
    message: Mapping[str, object],
    fds: Sequence[int] = (),
    patience: float = PATIENCE,
    dead: Callable[[str], SandboxDeadError] = SandboxDeadError,
) -> tuple[dict[str, Any], list[int]]:
    """One request and its one answer. Raises as ``Reply.next`` does."""
    reply = Reply(peer, message, fds, dead)
    try:
        return reply.next(patience)
    finally:
        reply.close()
