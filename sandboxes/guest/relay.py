"""The owner's end of the wire, inside: for an owner on another machine, who cannot hand descriptors over.

Speaks frames on the standard streams of this process and the messages of ``guest.wire`` with the server beside it. The
pipes that an owner on this machine would hold are held here, and their bytes forwarded; files stay open here too. All
of it runs in the first process, where no command can stop, kill or read it.
"""

from __future__ import annotations

import array
import fcntl
import json
import math
import os
import select
import socket
import termios
import time
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from forkgym.sandboxes.guest import frames, processes, wire
from forkgym.sandboxes.guest.frames import Frame
from forkgym.sandboxes.guest.kept import Answer, KeptFiles, content_of, write_all

_OWNER_PATIENCE = 900.0  # seconds; the owner says something every few seconds; some tunnels never tell that it is gone
_OOM_ACCOUNTS = ("memory.events", "memory.oom_control")


class _Feed:
    """A pipe that the owner writes into from afar."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.waiting = bytearray()
        self.ended = False


class _Request:
    """One request of the owner, and what it holds open."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.name: str | None = None  # of a command
        self.reply: socket.socket | None = None
        self.outs: dict[int, int] = {}  # reading ends, by index
        self.feeds: dict[int, _Feed] = {}
        self.files: dict[int, int] = {}
        self.problem: OSError | None = None  # with what came along
        self.unread: set[int] = set()  # pipes that are read to be forgotten
        self.credit = frames.WINDOW
        self.begin = 0.0  # when the command that a shell runs was sent
        self.idle = True
        self.flags = 0


class Relay:
    """Between the standard streams and the server. ``lasting``: pipes that are still read outlive the owner."""

    def __init__(self, lasting: bool = False) -> None:
        self._source, self._sink = _take_standard_streams()
        self._lasting = lasting
        self._gone = False
        self._parser = frames.Parser()
        self._arrived: list[Frame] = []
        self._requests: dict[int, _Request] = {}
        self._kept = KeptFiles()
        self._accounts: dict[str, int] = {}
        self._told: dict[str, str] = {}
        self._poll = select.poll()
        self._ready: dict[int, Callable[[], None]] = {}
        self._heard = time.monotonic()
        self._deadline = math.inf
        self._wall: float | None = None

    def begin(self) -> dict[str, Any]:
        """The first message of the owner; ``answer`` it."""
        while not self._arrived:
            self._receive()
        message = json.loads(self._arrived.pop(0).body)["message"]
        self._wall = message.get("wall")
        if self._wall is not None:
            self._deadline = time.monotonic() + self._wall
        return message

    def answer(self, message: dict[str, Any]) -> None:
        """The answer to the first message."""
        self._send(frames.REPLY, 0, body=json.dumps(message).encode())
        self._send(frames.END, 0)

    def serve(self, server: socket.socket, accounts: dict[str, int]) -> NoReturn:
        """Carry messages between the owner and ``server`` until the owner is gone."""
        self._server, self._accounts = server, accounts
        self._watch(self._source, select.POLLIN, self._receive)
        while True:
            while self._arrived:
                self._take(self._arrived.pop(0))
            for fd, _ in self._wait():
                if action := self._ready.get(fd):  # one before it may have closed this one
                    action()

    def _wait(self) -> list[tuple[int, int]]:
        until = min(self._heard + _OWNER_PATIENCE, self._deadline)
        ready = self._poll.poll(None if until == math.inf else max(0.0, until - time.monotonic()) * 1000)
        if time.monotonic() >= self._deadline:
            reason = f"it reached its limit wall={self._wall:g} seconds; create it with a larger one"
            self._send(frames.NOTE, 0, body=json.dumps({"end": reason}).encode())
            _kill_all()
        if time.monotonic() - self._heard >= _OWNER_PATIENCE:
            self._lose_owner()
        return ready

    def _watch(self, fd: int, events: int, action: Callable[[], None]) -> None:
        self._poll.register(fd, events)
        self._ready[fd] = action

    def _unwatch(self, fd: int) -> None:
        if self._ready.pop(fd, None):
            self._poll.unregister(fd)

    # Frames

    def _receive(self) -> None:
        data = os.read(self._source, 1 << 18)
        if not data:
            self._lose_owner()
            return
        self._heard = time.monotonic()
        self._arrived += self._parser.feed(data)

    def _send(self, kind: int, request: int, index: int = 0, body: bytes = b"") -> None:
        view = memoryview(frames.encode(kind, request, index, body))
        try:
            while view and not self._gone:
                view = view[os.write(self._sink, view) :]
        except BrokenPipeError:
            self._lose_owner()

    def _lose_owner(self) -> None:
        """End, and with this process everything inside; unless somebody still writes who should go on."""
        self._gone, self._heard = True, math.inf
        self._unwatch(self._source)
        for request in self._requests.values() if self._lasting else ():
            for index in request.outs:
                self._discard(request, index)
        if not any(request.outs for request in self._requests.values()) or not self._lasting:
            os._exit(0)

    def _take(self, frame: Frame) -> None:
        request = self._requests.get(frame.request)
        if frame.kind == frames.PING:
            self._send(frames.PONG, 0)
        elif frame.kind == frames.QUIT:
            _kill_all()
        elif frame.kind in (frames.FILE, frames.REQUEST):
            request = request or self._requests.setdefault(frame.request, _Request(frame.request))
            if frame.kind == frames.REQUEST:
                self._begin(request, json.loads(frame.body))
            else:
                _accept(request, frame)
        elif request is None:
            return  # it ended while this was under way
        elif frame.kind == frames.CREDIT:
            self._allow(request, int.from_bytes(frame.body))
        elif frame.kind == frames.SHUT:
            self._end_pipe(request, frame.part)
        elif frame.kind == frames.DRAIN:
            self._discard(request, frame.part)
        elif frame.part in request.feeds:
            self._feed(request, frame)

    # Requests

    def _begin(self, request: _Request, body: dict[str, Any]) -> None:
        message = body["message"]
        op = message["op"]
        here = getattr(self._kept, op, None) if op.startswith("file_") else getattr(self, f"_do_{op}", None)
        try:
            if request.problem is not None:
                raise request.problem
            if here is None:
                self._forward(request, message, body["kinds"])
                return
            answer, content = here(message, content_of(request.files.get(0)))
        except OSError as error:
            answer, content = wire.error(error), b""
        self._reply(request, answer, content)
        self._end(request)

    def _forward(self, request: _Request, message: dict[str, Any], kinds: list[str | int]) -> None:
        """Hand a request to the server, with descriptors of the kinds that the owner's have."""
        if message["op"] == "kill" and message["since"] is not None:  # on a clock that is not ours
            begins = [other.begin for other in self._requests.values() if other.name == message["id"]]
            message["since"] = begins[0] if begins else processes.now()
        request.name, request.flags = message.get("id") if message["op"] == "exec" else None, message.get("flags", 0)
        request.reply, theirs = wire.pair()
        request.reply.setblocking(False)
        passed: list[int] = []
        ends: list[int] = []
        try:
            for index, kind in enumerate(kinds if message["op"] == "exec" else ()):
                passed.append(passed[kind] if isinstance(kind, int) else self._open(request, index, kind, ends))
            wire.send(self._server, message, [theirs.fileno(), *passed])
        except OSError:
            for index in list(request.outs):
                self._end_pipe(request, index)
            raise
        finally:
            theirs.close()
            wire.close_all(ends)
        self._watch(request.reply.fileno(), select.POLLIN, lambda: self._pass_reply(request))
        self._listen(request)

    def _open(self, request: _Request, index: int, kind: str, ends: list[int]) -> int:
        if kind == "file":
            fd = request.files[index] if index in request.files else _store(request, Frame(0, 0, index, b""))
            os.lseek(fd, 0, os.SEEK_SET)
            return fd
        reading, writing = os.pipe2(os.O_CLOEXEC)
        if kind == "out":
            request.outs[index] = reading
        else:
            request.feeds[index] = _Feed(writing)
        os.set_blocking(reading if kind == "out" else writing, False)
        ends.append(writing if kind == "out" else reading)
        return ends[-1]

    def _pass_reply(self, request: _Request) -> None:
        assert request.reply is not None
        try:
            received = wire.receive(request.reply)
        except BlockingIOError:
            return
        if received is None:
            self._end(request)
            return
        message, fds = received
        content = b""
        if fds:
            message, content = self._kept.keep(fds[0], request.flags, content_of(request.files.get(0)))
        self._pump(request)  # what a command printed comes before its end
        self._reply(request, message, content)

    def _reply(self, request: _Request, message: dict[str, Any], content: bytes) -> None:
        for start in range(0, len(content), frames.CHUNK):
            self._send(frames.FILE, request.number, body=content[start : start + frames.CHUNK])
        self._send(frames.REPLY, request.number, body=json.dumps(message).encode())

    def _end(self, request: _Request) -> None:
        """There will be no other answer; its pipes may go on."""
        self._send(frames.END, request.number)
        if request.reply is not None:
            self._unwatch(request.reply.fileno())
            request.reply.close()
            request.reply = None
        for index in list(request.feeds):
            self._end_feed(request, index)
        wire.close_all(list(request.files.values()))
        request.files.clear()
        self._forget_ended(request)

    def _forget_ended(self, request: _Request) -> None:
        if request.reply is None and not request.outs:
            self._requests.pop(request.number, None)
            if self._gone:
                self._lose_owner()

    # Pipes out of the sandbox

    def _listen(self, request: _Request) -> None:
        for index, fd in request.outs.items():
            if request.credit > 0 or index in request.unread:
                self._watch(fd, select.POLLIN, lambda: self._pump(request))
            else:
                self._unwatch(fd)

    def _allow(self, request: _Request, more: int) -> None:
        request.credit += more
        self._listen(request)

    def _pump(self, request: _Request) -> None:
        """Forward what its pipes hold. What went into a later one follows what the earlier ones held by then."""
        found: list[tuple[int, bytes, bool]] = []
        for index in sorted(request.outs, reverse=True):
            data, ended = _read_available(request.outs[index])
            if index not in request.unread:
                found.append((index, data, ended))
            elif ended:
                self._end_pipe(request, index)
        self._note()
        for index, data, ended in reversed(found):
            for start in range(0, len(data), frames.CHUNK):
                self._send(frames.DATA, request.number, index, data[start : start + frames.CHUNK])
            request.credit -= len(data)
            request.idle = request.idle or bool(data and index > 1)  # the report of a shell
            if ended:
                self._send(frames.EOF, request.number, index)
                self._end_pipe(request, index)
        self._listen(request)

    def _discard(self, request: _Request, index: int) -> None:
        if index in request.outs:
            request.unread.add(index)
            self._listen(request)

    def _end_pipe(self, request: _Request, index: int) -> None:
        fd = request.outs.pop(index, None)
        if fd is not None:
            self._unwatch(fd)
            os.close(fd)
        self._forget_ended(request)

    def _note(self) -> None:
        """Tell what the accounts say of lack of memory, if that is new."""
        now = {name: text for name in _OOM_ACCOUNTS if (text := self._account(name))}
        if now != self._told:
            self._told = now
            self._send(frames.NOTE, 0, body=json.dumps(now).encode())

    def _account(self, name: str) -> str:
        try:
            return os.pread(self._accounts[name], 4096, 0).decode()
        except (KeyError, OSError):
            return ""

    # Pipes into the sandbox

    def _feed(self, request: _Request, frame: Frame) -> None:
        feed = request.feeds[frame.part]
        if request.idle:
            request.idle, request.begin = False, processes.now()
        feed.waiting += frame.body
        feed.ended = feed.ended or frame.kind == frames.EOF
        self._push(request, frame.part)

    def _push(self, request: _Request, index: int) -> None:
        feed = request.feeds[index]
        try:
            while feed.waiting:
                written = os.write(feed.fd, feed.waiting)
                del feed.waiting[:written]
                self._send(frames.CREDIT, request.number, index, frames.number(written))
        except BlockingIOError:
            self._watch(feed.fd, select.POLLOUT, lambda: self._push(request, index))
            return
        except BrokenPipeError:
            feed.waiting.clear()
        self._unwatch(feed.fd)
        if feed.ended:
            self._end_feed(request, index)

    def _end_feed(self, request: _Request, index: int) -> None:
        feed = request.feeds.pop(index)
        self._unwatch(feed.fd)
        os.close(feed.fd)

    # Requests that are served here

    def _do_refill(self, message: dict[str, Any], content: Iterator[bytes]) -> Answer:
        """Exchange the content of a file that a command was given as its last descriptor, unless it is gone."""
        for command in [other for other in self._requests.values() if other.name == message["id"]]:
            target = command.files[max(command.files)]
            os.ftruncate(target, 0)
            os.lseek(target, 0, os.SEEK_SET)
            for data in content:
                write_all(target, data)
        return {"ok": True}, b""

    def _do_usage(self, message: dict[str, Any], content: Iterator[bytes]) -> Answer:
        return {"accounts": {name: self._account(name) for name in self._accounts}}, b""


def _take_standard_streams() -> tuple[int, int]:
    """Our own copies of standard input and output, which lead nowhere from here on."""
    copies = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3) for fd in (0, 1)]
    null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    for fd in (0, 1):
        os.dup2(null, fd)
    os.close(null)
    return copies[0], copies[1]


def _store(request: _Request, frame: Frame) -> int:
    """Add content to the memory file of this index."""
    if frame.part not in request.files:
        request.files[frame.part] = os.memfd_create("data", os.MFD_CLOEXEC)
    write_all(request.files[frame.part], frame.body)
    return request.files[frame.part]


def _accept(request: _Request, frame: Frame) -> None:
    """As ``_store``, but what goes wrong is told in answer to the request: a file beyond the limit, for example."""
    try:
        _store(request, frame)
    except OSError as error:
        request.problem = error


def _read_available(fd: int) -> tuple[bytes, bool]:
    """What a pipe holds now, and whether that was its end."""
    count = array.array("i", [0])
    fcntl.ioctl(fd, termios.FIONREAD, count)
    parts: list[bytes] = []
    left = count[0]
    while left >= 0:
        try:
            data = os.read(fd, frames.CHUNK)
        except BlockingIOError:
            break
        if not data:
            return b"".join(parts), True
        parts.append(data)
        left -= len(data)
    return b"".join(parts), False


def _kill_all() -> NoReturn:
    """Everything is gone before the owner sees the end of this process."""
    processes.eliminate(0, (), lambda: None)
    os._exit(0)
