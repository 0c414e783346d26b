"""The persistent shell: a bash that reads a script without end.

Each command is sent as ``eval '...'``, followed by a line that reports exit code, working directory, variables,
functions and aliases over descriptor 62. The report carries a token that bash reads only after the command has ended,
so a command can print what it likes. There is no loop in the script that a stray ``break`` could leave.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import select
import shlex
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from forkgym.sandboxes.base import DEFAULT_MAX_OUTPUT, DEFAULT_TIMEOUT, ExecResult
from forkgym.sandboxes.errors import SandboxDeadError
from forkgym.sandboxes.guest import processes, wire
from forkgym.sandboxes.owner.checks import check_command, check_count, check_timeout
from forkgym.sandboxes.owner.commands import (
    Peer,
    Pipe,
    give,
    hand_over,
    not_started,
    unspeakable,
    wait_ms,
)
from forkgym.sandboxes.owner.output import Capture
from forkgym.sandboxes.owner.reply import Refused, Reply

_LONG_FD, _REPORT_FD, _SCRIPT_FD = 61, 62, 63
_LONG = 16 << 10  # bytes; bash reads a script from a pipe one byte at a time
_MAX_REPORT = 16 << 20
_Judge = Callable[[ExecResult], ExecResult]
_DUMP = "builtin declare -p; builtin declare -f; builtin alias -p"
_REFRESH = (
    '__forkgym_old=${OLDPWD-}; builtin cd -- "${PWD-/}" 2>/dev/null; OLDPWD=$__forkgym_old; unset -v __forkgym_old\n'
)


@dataclass(frozen=True)
class ShellState:
    """What a reopened or forked shell starts with. ``script`` restores variables, functions and aliases."""

    cwd: str
    script: str = ""


@dataclass(frozen=True)
class _Report:
    code: int
    state: ShellState


class _Session:
    """One running bash."""

    def __init__(self, peer: Peer, name: str, state: ShellState, env: dict[str, str]) -> None:
        self.name = name
        self.long = -1
        self.output, self.script, self.report = Pipe(peer.owner), Pipe(peer.owner), Pipe(peer.owner)
        message = {
            "op": "exec",
            "id": name,
            "argv": ["bash", "--noprofile", "--norc", "bash"],  # a link that leads to the script
            "env": {"PATH": env["PATH"]} if state.script else env,
            "cwd": peer.shell_place,
            "stdin": False,
            "extra": [_REPORT_FD, _SCRIPT_FD, _LONG_FD],
        }
        try:
            os.set_blocking(self.script.read_end, True)
            os.set_blocking(self.script.write_end, False)
            self.long = give(wire.memory_file(b""), peer.owner)
            fds = [self.output.write_end, self.output.write_end, self.report.write_end, self.script.read_end, self.long]
            self.reply: Reply = peer.request(message, fds)
        except BaseException:
            self._close_pipes()
            raise
        self.output.close_write()
        self.report.close_write()
        os.close(self.script.read_end)
        self.script.read_end = -1
        self.unsent = _prologue(state)

    def ended(self) -> bool:
        """True if its bash is gone."""
        poll = select.poll()
        poll.register(self.reply.fileno(), select.POLLIN)
        return bool(poll.poll(0))

    def send_now(self, text: str) -> None:
        """Queue script text; as much as fits is written at once."""
        self.unsent += os.fsencode(text)
        self.push()

    def send_command(self, peer: Peer, command: str, token: str) -> None:
        """Queue a command and the line that reports on it."""
        text = os.fsencode(command)
        if len(text) < _LONG:
            words, without = shlex.quote(command), f"{_REPORT_FD}>&- {_LONG_FD}>&-"
        else:
            os.ftruncate(self.long, 0)
            os.pwrite(self.long, text, 0)
            peer.refill(self.name, self.long)
            words, without = f'"$(</dev/fd/{_LONG_FD})"', f"{_REPORT_FD}>&- {_LONG_FD}>&-"
        begin, end = f'builtin printf "%s\\0%d\\0%s\\0" {token} "$?" "${{PWD-}}"', f'builtin printf "\\0%s\\0" {token}'
        # Without the empty line, bash would stumble over the second line after an unbalanced quote in the first. The
        # one before keeps what a command wrote into this script by itself from becoming part of the next.
        self.send_now(
            f"\neval {words} </dev/null {without}\n\n{{ {begin}; {_DUMP}; {end}; }} 2>/dev/null >&{_REPORT_FD}\n"
        )

    def push(self) -> None:
        """Write what the pipe takes."""
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            while self.unsent:
                self.unsent = self.unsent[os.write(self.script.write_end, self.unsent[: 1 << 16]) :]

    def close(self, peer: Peer | None = None) -> None:
        """Let go of it; ``peer`` reads on from its output for background children."""
        if peer is not None:
            with contextlib.suppress(SandboxDeadError):
                hand_over(peer, [self.output.read_end])
        self.reply.close()
        self._close_pipes()

    def _close_pipes(self) -> None:
        if self.long >= 0:
            os.close(self.long)
            self.long = -1
        for pipe in (self.output, self.script, self.report):
            pipe.close()


class PersistentShell:
    """See ``forkgym.sandboxes.base.Shell``. Calls from several threads wait for each other."""

    def __init__(self, peer: Peer, name: str, state: ShellState, env: dict[str, str], judge: _Judge) -> None:
        self.name = name
        self._peer = peer
        self._judge = judge
        self._env = env
        self._state = state
        self._session: _Session | None = None
        self._restarts = 0
        self._lock = threading.Lock()

    @property
    def restarts(self) -> int:
        """How many times the shell was lost to a timeout, an ``exit`` or a crash; the next run reopens it."""
        return self._restarts

    def run(
        self, command: str, *, timeout: float = DEFAULT_TIMEOUT, max_output: int = DEFAULT_MAX_OUTPUT
    ) -> ExecResult:
        """Run ``command`` in the shell. Raises ``SandboxDeadError`` if the sandbox is gone."""
        check_command(command)
        check_timeout(timeout)
        check_count("max_output", max_output)
        problem = unspeakable(command)
        if problem:
            return ExecResult(126, problem, b"", 0.0, total_bytes=len(problem))
        with self._lock:
            return self._judge(self._run(command, timeout, max_output))

    def _run(self, command: str, timeout: float, max_output: int) -> ExecResult:
        begin, since = time.monotonic(), processes.now()
        session = self._open()
        capture, token = Capture(max_output), secrets.token_hex(8)
        session.send_command(self._peer, command, token)
        timed_out = False
        try:
            report = self._follow(session, capture, token, begin + timeout)
            if report is None:
                timed_out = True
                code = self._abandon(session, capture, since)
            elif isinstance(report, int):
                code = report
                self._lose(session, capture)
            else:
                code, self._state = report.code, report.state
                capture.read_from(session.output.read_end)
        except BaseException:
            if not timed_out:
                with contextlib.suppress(Exception):
                    self._abandon(session, capture, since)
            raise
        return ExecResult(
            exit_code=code,
            stdout=capture.bytes(),
            stderr=b"",
            duration=time.monotonic() - begin,
            timed_out=timed_out,
            truncated=capture.truncated,
            total_bytes=capture.total,
        )

    def _open(self) -> _Session:
        if self._session is not None and self._session.ended():
            self._lose(self._session, Capture(0))  # somebody killed it while it was idle
        if self._session is None:
            name = f"shell-{self.name}-{secrets.token_hex(4)}"
            self._session = _Session(self._peer, name, self._state, self._env)
        return self._session

    def _follow(self, session: _Session, capture: Capture, token: str, deadline: float) -> _Report | int | None:
        """Wait for the report; the exit code of bash itself if it ended instead; ``None`` at the deadline."""
        poll = select.poll()
        for fd in (session.reply.fileno(), session.output.read_end, session.report.read_end):
            poll.register(fd, select.POLLIN)
        if session.unsent:
            poll.register(session.script.write_end, select.POLLOUT)
        end = token.encode() + b"\0"
        received = bytearray()
        while True:
            ended = False
            for fd, _ in poll.poll(wait_ms(deadline)):
                if fd == session.output.read_end:
                    if not capture.read_from(fd):
                        poll.unregister(fd)
                elif fd == session.report.read_end:
                    if not _read_report(fd, received):
                        poll.unregister(fd)
                elif fd == session.script.write_end:
                    session.push()
                    if not session.unsent:
                        poll.unregister(fd)
                else:
                    ended = True
            if received.endswith(end) and (report := _parse(bytes(received), end)):
                return report
            if ended:
                return _ended(session.reply, capture)
            if time.monotonic() >= deadline:
                return None

    def _abandon(self, session: _Session, capture: Capture, since: float) -> int:
        """Kill the bash and all that its running command started; background children of earlier ones live on."""
        answer, _ = self._peer.ask({"op": "kill", "id": session.name, "since": since})
        if answer["cwd"]:
            self._state = ShellState(answer["cwd"], self._state.script)
        self._lose(session, capture)
        return -9

    def _lose(self, session: _Session, capture: Capture) -> None:
        more = capture.read_from(session.output.read_end)
        session.close(self._peer if more else None)
        self._session = None
        self._restarts += 1

    def hold(self) -> bool:
        """Keep the shell from starting a command, if it is idle; ``release`` undoes that."""
        return self._lock.acquire(blocking=False)

    def release(self, moved: bool = False) -> None:
        """End ``hold``. ``moved``: the root was exchanged, so bash must enter its working directory anew."""
        if moved and self._session is not None:
            self._session.send_now(_REFRESH)
        self._lock.release()

    @property
    def state(self) -> ShellState:
        """The last known state."""
        return self._state

    @property
    def session_name(self) -> str | None:
        """The id of the running bash, if there is one."""
        return self._session.name if self._session is not None else None

    def close(self) -> None:
        """Let go of the shell of a sandbox that is gone, once a command that another thread runs in it has ended.

        Its descriptors must not be closed under that thread: their numbers may at once belong to something else.
        """
        with self._lock:
            if self._session is not None:
                self._session.close()
                self._session = None


def _prologue(state: ShellState) -> bytes:
    lines = [f"exec {_SCRIPT_FD}<&-", "shopt -s expand_aliases"]
    lines += ["builtin cd /", f"builtin cd -- {shlex.quote(state.cwd)} 2>/dev/null", "unset -v OLDPWD"]
    if state.script:
        lines += ["__forkgym_cwd=$PWD", f"eval {shlex.quote(state.script)} >/dev/null 2>&1", ""]
        lines += ["PWD=$__forkgym_cwd", "unset -v __forkgym_cwd"]
    return os.fsencode("\n".join(lines) + "\n")


def _ended(reply: Reply, capture: Capture) -> int:
    try:
        return reply.next()[0]["code"]
    except Refused as error:  # no bash in the image, or no process left for it
        code, text = not_started(error)
        capture.add(text)
        return code


def _read_report(fd: int, received: bytearray) -> bool:
    try:
        data = os.read(fd, 1 << 16)
    except BlockingIOError:
        return True
    received += data
    if len(received) > _MAX_REPORT:
        del received[: -(1 << 16)]
    return bool(data)


def _parse(received: bytes, end: bytes) -> _Report | None:
    """The report that ends ``received``; ``None`` for anything else, which only a command that went after our
    descriptors could have written there."""
    fields = received.split(end)[-2].split(b"\0", 2) if received.count(end) > 1 else []
    if len(fields) != 3 or not re.fullmatch(rb"[0-9]{1,3}", fields[0]):
        return None
    code, cwd, script = fields
    return _Report(int(code), ShellState(os.fsdecode(cwd), os.fsdecode(script.rstrip(b"\0"))))
