"""Running one command: pipes for its output, a deadline, and what becomes of background children."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from forkgym.sandboxes.base import ExecResult
from forkgym.sandboxes.errors import SandboxDeadError, SandboxTimeoutError
from forkgym.sandboxes.guest import wire
from forkgym.sandboxes.owner.output import Capture
from forkgym.sandboxes.owner.reply import Refused, Reply

# How long an ended command's open output is read on: a child of a pipeline may be about to finish its last line.
_GRACE = 0.1
_LONGEST_ARGUMENT = 100_000  # the kernel allows 131,071 bytes; leave room for what bash adds
_SCRIPT_FD = 61
_MAX_WAIT = 3600.0
_DEATH_PATIENCE = 10.0


class Peer(Protocol):
    """The sandbox's first process, as far as commands need it.

    ``owner``: uid and gid of its user on the host, if they are not our own. ``shell_place``: a directory inside with a
    link ``bash`` to the script of a persistent shell, under the name that its error messages should begin with.
    ``distant``: what is sent along with requests arrives as copies.
    """

    shell_place: str
    distant: bool

    @property
    def owner(self) -> tuple[int, int] | None: ...

    def request(self, message: Mapping[str, object], fds: Sequence[int] = ()) -> Reply:
        """Send a request."""
        ...

    def ask(self, message: Mapping[str, object], fds: Sequence[int] = ()) -> tuple[dict[str, Any], list[int]]:
        """Send a request and wait for its answer."""
        ...

    def refill(self, name: str, file: int) -> None:
        """Tell that ``file``, the last descriptor that command ``name`` was given, has new content."""
        ...


class Pipe:
    """A pipe whose reading end is ours and does not block. It belongs to ``owner``, who may then open /dev/stdout."""

    def __init__(self, owner: tuple[int, int] | None) -> None:
        self.read_end, self.write_end = os.pipe2(os.O_CLOEXEC)
        give(self.write_end, owner)
        os.set_blocking(self.read_end, False)

    def close_write(self) -> None:
        """Leave the writing to those who inherited it."""
        if self.write_end >= 0:
            os.close(self.write_end)
            self.write_end = -1

    def close(self) -> None:
        """Close both ends."""
        self.close_write()
        if self.read_end >= 0:
            os.close(self.read_end)
            self.read_end = -1


def give(fd: int, owner: tuple[int, int] | None) -> int:
    """Make the sandbox's user the owner of an open file; returns ``fd``."""
    if owner is not None and owner != (os.geteuid(), os.getegid()):
        try:
            os.fchown(fd, *owner)
        except PermissionError:
            os.fchmod(fd, 0o666)  # we are not root: then who has it may open it anew
    return fd


def run(
    peer: Peer,
    name: str,
    command: str | Sequence[str],
    *,
    start: Callable[[dict[str, Any], list[int]], Reply],
    kill: Callable[[], None],
    timeout: float,
    message: dict[str, Any],
    stdin: bytes | None,
    max_output: int | None,
) -> ExecResult:
    """Start a command through ``start`` and follow it until it ended, or ``kill`` it at the deadline."""
    begin = time.monotonic()
    problem = unspeakable(command)
    if problem:
        return ExecResult(126, b"", problem, 0.0, total_bytes=len(problem))
    captures, pipes = (Capture(max_output), Capture(max_output)), (Pipe(peer.owner), Pipe(peer.owner))
    files: list[int] = []
    timed_out = False
    try:
        argv, extra = _argv(command, files)
        stdin_fds = [give(wire.memory_file(stdin), peer.owner)] if stdin is not None else []
        files += stdin_fds
        body = {"op": "exec", "id": name, "argv": argv, "stdin": bool(stdin_fds), "extra": extra, **message}
        fds = [pipes[0].write_end, pipes[1].write_end, *stdin_fds, *(fd for fd in files if fd not in stdin_fds)]
        reply = start(body, fds)
        for pipe in pipes:
            pipe.close_write()
        streams = {pipe.read_end: capture for pipe, capture in zip(pipes, captures, strict=True)}
        try:
            code = _follow(reply, streams, begin + timeout)
            if code is None:
                timed_out = True
                kill()
                code = _follow(reply, streams, time.monotonic() + _DEATH_PATIENCE)
                if code is None:
                    raise SandboxTimeoutError(f"{argv[0]} could not be killed; close the sandbox")
        except Refused as error:
            if error.errno == errno.ESRCH:  # the namespaces to start it in are gone
                raise SandboxDeadError("the sandbox is gone") from error
            code, text = not_started(error)
            return ExecResult(code, b"", text, 0.0, total_bytes=len(text))
        except BaseException:
            if not timed_out:
                with contextlib.suppress(Exception):
                    kill()
            raise
        finally:
            reply.close()
        hand_over(peer, _settle(streams))
    finally:
        for pipe in pipes:
            pipe.close()
        for fd in files:
            os.close(fd)
    return ExecResult(
        exit_code=code,
        stdout=captures[0].bytes(),
        stderr=captures[1].bytes(),
        duration=time.monotonic() - begin,
        timed_out=timed_out,
        truncated=any(capture.truncated for capture in captures),
        total_bytes=sum(capture.total for capture in captures),
    )


def hand_over(peer: Peer, fds: list[int]) -> None:
    """Let the first process read on from pipes that background children still hold, so that they go on living."""
    if fds:
        peer.request({"op": "drain"}, fds).close()


def wait_ms(deadline: float) -> float:
    """Milliseconds until ``deadline``, for poll."""
    return max(0.0, min(deadline - time.monotonic(), _MAX_WAIT)) * 1000


def unspeakable(command: str | Sequence[str]) -> bytes:
    """Why the kernel has no way to pass this command, as a message; empty if it has."""
    words = [command] if isinstance(command, str) else command
    if not words:
        return b"sandbox: empty command\n"
    if any("\0" in word for word in words):
        return b"sandbox: a command cannot hold a NUL byte\n"
    try:
        for word in words:
            os.fsencode(word)
    except UnicodeEncodeError:
        return b"sandbox: a command cannot hold half a surrogate pair\n"
    return b""


def _argv(command: str | Sequence[str], files: list[int]) -> tuple[list[str], list[int]]:
    """The program and its arguments; a text too long for an argument is read from a file at a fixed descriptor."""
    if not isinstance(command, str):
        return list(command), []
    text = os.fsencode(command)
    if len(text) < _LONGEST_ARGUMENT:
        return ["bash", "-c", command], []
    files.append(wire.memory_file(text))
    return ["bash", "-c", f". /dev/fd/{_SCRIPT_FD}"], [_SCRIPT_FD]


def _follow(reply: Reply, streams: dict[int, Capture], deadline: float) -> int | None:
    """Read until the command ended and return its exit code; ``None`` at the deadline. Ended streams are removed."""
    poll = select.poll()
    for fd in (reply.fileno(), *streams):
        poll.register(fd, select.POLLIN)
    while True:
        for fd, _ in poll.poll(wait_ms(deadline)):
            if fd == reply.fileno():
                return reply.next()[0]["code"]
            if not streams[fd].read_from(fd):
                poll.unregister(fd)
                del streams[fd]
        if time.monotonic() >= deadline:
            return None


def _settle(streams: dict[int, Capture]) -> list[int]:
    """Read what an ended command left in its pipes; returns those that others still hold open."""
    poll = select.poll()
    for fd in streams:
        poll.register(fd, select.POLLIN)
    deadline = time.monotonic() + _GRACE
    while streams and (events := poll.poll(wait_ms(deadline))):
        for fd, _ in events:
            if not streams[fd].read_from(fd):
                poll.unregister(fd)
                del streams[fd]
        if time.monotonic() >= deadline:
            break
    return list(streams)


def not_started(error: Refused) -> tuple[int, bytes]:
    """The exit code and message of a shell for a program that did not start."""
    text = f"sandbox: {error.strerror}\n".encode(errors="surrogateescape")
    return 127 if error.errno == errno.ENOENT else 126, text
