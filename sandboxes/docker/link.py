"""One connection of the ``bridge``: between the owner's end of a sandbox's socket and the relay inside."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import socket
import stat
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol

from forkgym.sandboxes.errors import SandboxDeadError
from forkgym.sandboxes.guest import frames, wire
from forkgym.sandboxes.guest.frames import Frame

_SILENCE = 60.0  # seconds; then the other end is gone, though nobody said so
_CALL_AFTER = 10.0  # seconds of silence until we ask for a sign of life
_QUIT_PATIENCE = 10.0


class Bytes(Protocol):
    """See ``stream.Stream``."""

    complaint: bytes

    def fileno(self) -> int: ...

    def send(self, data: memoryview) -> int: ...

    def receive(self) -> bytes | None: ...

    def close(self) -> None: ...


class Watcher(Protocol):
    """What the bridge does for its links, in its thread. ``pipes``: who writes into which pipe, by its inode."""

    pipes: Pipes

    def watch(self, fd: int, events: int, action: Callable[[int], None], link: Link) -> None: ...

    def unwatch(self, fd: int) -> None: ...


class _Call:
    """One request of the owner: copies of what it sent along, and what is on its way to these."""

    def __init__(self, number: int, reply: socket.socket) -> None:
        self.number = number
        self.reply: socket.socket | None = reply
        self.outs: dict[int, int] = {}  # writing ends of the owner's pipes, by index
        self.ins: dict[int, int] = {}
        self.files: list[int] = []
        self.room: dict[int, int] = {}  # bytes that may be sent of each of ``ins``
        self.queue: deque[Frame] = deque()
        self.waiting = 0  # bytes in ``queue``
        self.owed = 0  # bytes that have left it, and that the relay does not know of
        self.content = bytearray()

    def close(self) -> None:
        """Let go of everything."""
        if self.reply is not None:
            self.reply.close()
            self.reply = None
        wire.close_all([*self.outs.values(), *self.ins.values(), *self.files])
        self.outs, self.ins, self.files = {}, {}, []


class Link:
    """``socket`` is the owner's. ``notes``: what the accounts of the container said last. ``problem``: why it ended."""

    def __init__(self, watcher: Watcher, stream: Bytes, *, once: bool, notes: dict[str, str] | None) -> None:
        self.socket, self._requests = wire.pair()
        self._requests.setblocking(False)
        self.notes: dict[str, str] = {} if notes is None else notes
        self.problem = ""
        self.ended = False
        self._watcher = watcher
        self._stream = stream
        self._once = once
        self._left: float | None = None  # when the owner was done
        self._gone = threading.Event()
        self._parser = frames.Parser()
        self._calls: dict[int, _Call] = {}
        self._next = 0
        self._out: deque[Iterator[bytes]] = deque()
        self._begun = memoryview(b"")
        self._heard = self._asked = time.monotonic()

    def close(self) -> None:
        """Ask that everything inside be killed, and wait until it is. For the owner's threads."""
        self.socket.close()
        self._gone.wait(2 * _QUIT_PATIENCE)

    def death(self, message: str) -> SandboxDeadError:
        """The error for what was to be done over it, once it has ended."""
        return SandboxDeadError(f"{message}: {self.problem}" if self.problem else message)

    # In the bridge's thread

    def start(self) -> None:
        """Begin to listen."""
        self._watch(self._stream.fileno(), select.POLLIN, self._carry)
        self._watch(self._requests.fileno(), select.POLLIN, self._accept)

    def feel_pulse(self, now: float) -> None:
        """Ask for a sign of life after a while of silence; give up after a long one."""
        if self.ended:
            return
        overdue = self._left is not None and not self._once and now - self._left > _QUIT_PATIENCE
        if overdue or now - self._heard > _SILENCE:
            self.end(f"nothing was heard of the container for {now - self._heard:.0f} s")
        elif now - max(self._heard, self._asked) > _CALL_AFTER:
            self._asked = now
            self._send(frames.encode(frames.PING))

    def drop(self) -> None:
        """In a forked child: close the copies of everything, and say nothing."""
        self.ended = True
        self._stream.close()
        self._requests.close()
        for call in self._calls.values():
            call.close()

    def end(self, problem: str) -> None:
        """Close everything; the owner is told this reason."""
        if self.ended:
            return
        complaint = self._stream.complaint.decode(errors="replace").strip().rpartition("\n")[2]
        self.problem = self.notes.get("end") or (f"{problem} ({complaint})" if complaint else problem)
        self.ended = True
        self._watcher.unwatch(self._stream.fileno())
        self._watcher.unwatch(self._requests.fileno())
        for call in list(self._calls.values()):
            self._drop_call(call)
        self._stream.close()
        self._requests.close()
        self._gone.set()

    def _watch(self, fd: int, events: int, action: Callable[[int], None]) -> None:
        self._watcher.watch(fd, events, action, self)

    def _drop_call(self, call: _Call) -> None:
        self._calls.pop(call.number, None)
        for index in list(call.outs):
            self._close_out(call, index)
        for index in list(call.ins):
            self._close_in(call, index)
        call.close()

    # To the container

    def _accept(self, _: int) -> None:
        """Take a request of the owner."""
        try:
            received = wire.receive(self._requests)
        except BlockingIOError:
            return
        if received is None:
            self._leave()
            return
        message, fds = received
        reply = socket.socket(fileno=fds.pop(0))
        if message.get("op") == "drain":
            reply.close()
            for fd in fds:
                self._drain(fd)
            return
        call = _Call(self._next, reply)
        self._calls[call.number] = call
        self._next += 1
        content, kinds = self._adopt(call, fds)
        self._out.extend(content)
        body = json.dumps({"message": message, "kinds": kinds}).encode()
        self._send(frames.encode(frames.REQUEST, call.number, body=body))

    def _leave(self) -> None:
        """The owner is done: end everything inside, or let one command finish what it prints."""
        self._watcher.unwatch(self._requests.fileno())
        self._left = time.monotonic()
        if not self._once:
            self._send(frames.encode(frames.QUIT))
        elif not self._calls:
            self.end("it was closed")

    def _adopt(self, call: _Call, fds: list[int]) -> tuple[list[Iterator[bytes]], list[str | int]]:
        """Take over the descriptors of a request; returns the content of files, and the kind of each."""
        content: list[Iterator[bytes]] = []
        kinds: list[str | int] = []
        known: dict[int, int] = {}
        for index, fd in enumerate(fds):
            status = os.fstat(fd)
            if stat.S_ISREG(status.st_mode):
                kinds.append("file")
                call.files.append(fd)
                content.append(_content(call.number, index, fd))
            elif status.st_ino in known:  # standard error into standard output
                kinds.append(known[status.st_ino])
                os.close(fd)
            else:
                known[status.st_ino] = index
                kinds.append(self._adopt_pipe(call, index, fd, status.st_ino))
        return content, kinds

    def _adopt_pipe(self, call: _Call, index: int, fd: int, inode: int) -> str:
        os.set_blocking(fd, False)
        if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY:
            call.outs[index] = fd
            self._watcher.pipes[inode] = (self, call, index)
            self._watch(fd, 0, lambda event: self._look_at_out(call, index, event))
            return "out"
        call.ins[index], call.room[index] = fd, frames.FEED
        self._watch(fd, select.POLLIN, lambda _: self._feed(call, index))
        return "in"

    def _feed(self, call: _Call, index: int) -> None:
        try:
            data = os.read(call.ins[index], min(frames.CHUNK, call.room[index]))
        except BlockingIOError:
            return
        if not data:
            self._close_in(call, index)
            self._send(frames.encode(frames.EOF, call.number, index))
            return
        call.room[index] -= len(data)
        if not call.room[index]:
            self._watcher.unwatch(call.ins[index])
        self._send(frames.encode(frames.DATA, call.number, index, data))

    def _drain(self, fd: int) -> None:
        """Nobody reads this pipe of the owner any more, but who writes into it should go on."""
        link, call, index = self._watcher.pipes.get(os.fstat(fd).st_ino, (None, None, 0))
        os.close(fd)
        if link is not None and call is not None:
            link._close_out(call, index)
            link._send(frames.encode(frames.DRAIN, call.number, index))
            link._deliver(call)

    def _send(self, frame: bytes) -> None:
        self._out.append(iter((frame,)))
        self._flush()

    def _flush(self) -> None:
        """Send what the connection takes. While it takes no more, no more requests are accepted."""
        try:
            while not self.ended and self._next_piece():
                sent = self._stream.send(self._begun)
                self._begun = self._begun[sent:]
                if not sent:
                    self._watch(self._stream.fileno(), select.POLLIN | select.POLLOUT, self._carry)
                    if self._left is None:
                        self._watcher.unwatch(self._requests.fileno())
                    return
        except OSError as error:
            self.end(f"the connection to the docker daemon broke: {error}")

    def _next_piece(self) -> bool:
        while not self._begun and self._out:
            piece = next(self._out[0], None)
            if piece is None:
                self._out.popleft()
            else:
                self._begun = memoryview(piece)
        return bool(self._begun)

    # From the container

    def _carry(self, event: int) -> None:
        """The connection can be read, or written to."""
        if event & select.POLLOUT:
            self._flush()
            if not self.ended and not self._begun:
                self._watch(self._stream.fileno(), select.POLLIN, self._carry)
                if self._left is None:
                    self._watch(self._requests.fileno(), select.POLLIN, self._accept)
        if event & ~select.POLLOUT and not self.ended:
            self._receive()

    def _receive(self) -> None:
        try:
            data = self._stream.receive()
            if data is None:
                self.end("the connection to the container ended")
                return
            self._heard = time.monotonic()
            for frame in self._parser.feed(data):
                self._take(frame)
        except OSError as error:
            self.end(f"the connection to the docker daemon broke: {error}")
        except ValueError as error:  # also of JSON
            self.end(f"the container sent what it cannot mean: {error}")

    def _take(self, frame: Frame) -> None:
        if frame.kind == frames.NOTE:
            self.notes.update(json.loads(frame.body))
        call = self._calls.get(frame.request)
        if call is None or frame.kind in (frames.NOTE, frames.PONG):
            return
        if frame.kind == frames.CREDIT:
            self._allow(call, frame)
            return
        call.waiting += len(frame.body)
        if call.waiting + len(call.content) > frames.WINDOW + frames.OVERDRAFT + frames.LARGEST:
            raise frames.BrokenStreamError("more than it was allowed to")
        call.queue.append(frame)
        self._deliver(call)

    def _allow(self, call: _Call, frame: Frame) -> None:
        if frame.part in call.ins:
            call.room[frame.part] += int.from_bytes(frame.body)
            self._watch(call.ins[frame.part], select.POLLIN, lambda _: self._feed(call, frame.part))

    def _deliver(self, call: _Call) -> None:
        """Hand over what has arrived, in order, as far as the owner's pipes take it."""
        while call.queue:
            frame = call.queue.popleft()
            rest = self._hand_over(call, frame)
            done = len(frame.body) - len(rest)
            call.waiting -= done
            call.owed += done if frame.kind == frames.DATA else 0
            if rest:
                call.queue.appendleft(frame._replace(body=rest))
                break
        if call.owed >= frames.WINDOW // 4 and not self.ended:
            self._send(frames.encode(frames.CREDIT, call.number, body=frames.number(call.owed)))
            call.owed = 0
        if call.reply is None and not call.outs and not call.queue:
            self._drop_call(call)
            if self._once and self._left is not None and not self._calls:
                self.end("it was closed")

    def _hand_over(self, call: _Call, frame: Frame) -> bytes:
        """Deliver one frame; returns what of it has to wait."""
        if frame.kind == frames.DATA and frame.part in call.outs:
            return self._write(call, frame.part, frame.body)
        if frame.kind == frames.EOF:
            self._close_out(call, frame.part)
        elif frame.kind == frames.FILE:
            call.content += frame.body
        elif frame.kind == frames.REPLY and call.reply is not None:
            fds = [wire.memory_file(call.content)] if call.content else []
            call.content = bytearray()
            with contextlib.suppress(OSError):
                wire.send(call.reply, json.loads(frame.body), fds)
            wire.close_all(fds)
        elif frame.kind == frames.END and call.reply is not None:
            call.reply.close()
            call.reply = None
            for index in list(call.ins):
                self._close_in(call, index)
        return b""

    def _write(self, call: _Call, index: int, data: bytes) -> bytes:
        try:
            while data:
                data = data[os.write(call.outs[index], data) :]
        except BlockingIOError:
            self._watch(call.outs[index], select.POLLOUT, lambda event: self._look_at_out(call, index, event))
        except BrokenPipeError:
            self._shut(call, index)
            return b""
        return data

    def _look_at_out(self, call: _Call, index: int, event: int) -> None:
        """One of the owner's pipes can be written to again, or is closed."""
        if event & select.POLLERR:
            self._shut(call, index)
        else:
            self._watch(call.outs[index], 0, lambda event: self._look_at_out(call, index, event))
        self._deliver(call)

    def _shut(self, call: _Call, index: int) -> None:
        self._close_out(call, index)
        self._send(frames.encode(frames.SHUT, call.number, index))

    def _close_out(self, call: _Call, index: int) -> None:
        fd = call.outs.pop(index, None)
        if fd is not None:
            self._watcher.pipes.pop(os.fstat(fd).st_ino, None)
            self._watcher.unwatch(fd)
            os.close(fd)

    def _close_in(self, call: _Call, index: int) -> None:
        fd = call.ins.pop(index)
        self._watcher.unwatch(fd)
        os.close(fd)


Pipes = dict[int, tuple[Link, _Call, int]]


def _content(number: int, index: int, fd: int) -> Iterator[bytes]:
    """The frames that hold a file, read as they are sent."""
    start = 0
    while data := os.pread(fd, frames.CHUNK, start):
        yield frames.encode(frames.FILE, number, index, data)
        start += len(data)
