"""The warden: a child of the zygote that holds sandboxes to the limits that no part of the kernel holds here.

Disk: file systems without quotas cannot refuse a write, so it looks at the file system many times a second, which
costs one call, measures a sandbox only when the growth since its last measurement could take it over its limit, and
kills what runs in one that is over. The sandbox itself lives on, so that files can be removed: what it has then is
what it may have, until it is below its limit again. Wall time: the sandbox ends.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

from forkgym.sandboxes.guest import processes, syscalls, wire
from forkgym.sandboxes.local import measuring

# In a sandbox's directory: when its processes were killed for its disk limit, and why it was ended.
OVERRUNS, CAUSE = "overruns", "cause"
MOMENT = struct.Struct("d")  # seconds since boot; the beginning of a killing, its end, the beginning of the next
_BUSY, _CALM = 0.01, 0.05  # seconds between two looks, by whether the file system changed at the last one
_AT_MOST_EVERY = 1.0  # seconds between measurements that no growth calls for,
_AT_MOST_EVERY_OVER = 0.1  # and of a sandbox that is over its limit
_SHARE = 20  # those take at most one part of so many of the time
_HASTE = 3  # and the others, of one sandbox, one of so many
_SLACK = 1 << 20  # bytes that commands may need to remove others
_URGENCY = 15
_TOO_MUCH = 256 << 20  # bytes; a sandbox that is over twice its limit and this is ended


@dataclass
class _Box:
    """``used``: at the last measurement, when the file system held ``around`` bytes."""

    pidfd: int
    directory: str
    disk: int | None
    wall: float | None
    end: float
    used: int = 0
    around: int = 0
    measured: float = 0.0
    cost: float = 0.0
    stale: bool = True  # the file system changed since the last measurement
    allowed: int = field(init=False)

    def __post_init__(self) -> None:
        self.allowed = self.disk or 0


class Warden:
    """``sweep`` kills all processes of the sandbox behind a pidfd but the first."""

    def __init__(self, requests: socket.socket, sweep: Callable[[int], None]) -> None:
        self._requests = requests
        self._sweep = sweep
        self._boxes: dict[int, _Box] = {}
        self._poll = select.poll()
        self._poll.register(requests, select.POLLIN)
        self._last = -1
        self._rested = 0.0
        self._pause = _CALM

    def serve(self) -> NoReturn:
        """Watch until the zygote is gone."""
        while True:
            for fd, _ in self._poll.poll(self._patience_ms()):
                if fd != self._requests.fileno():
                    self._forget(fd)
                elif (received := wire.receive(self._requests)) is None:
                    os._exit(0)
                else:
                    self._watch(*received)
            now = time.monotonic()
            for box in [box for box in self._boxes.values() if box.end <= now]:
                self._end(box, f"it reached its limit wall={box.wall:g} seconds; create it with a larger one")
            # A sandbox that ends or is removed meanwhile has no use for its limit.
            with contextlib.suppress(OSError):
                self._look(now)

    def _patience_ms(self) -> float | None:
        waits = [box.end - time.monotonic() for box in self._boxes.values() if box.wall is not None]
        if any(box.disk is not None for box in self._boxes.values()):
            waits.append(self._pause)
        return max(0.0, min(waits)) * 1000 if waits else None

    def _watch(self, message: dict[str, Any], fds: list[int]) -> None:
        wall = message["wall"]
        end = time.monotonic() + wall if wall is not None else float("inf")
        box = _Box(fds[0], message["directory"], message["disk"], wall, end)
        try:
            box.around = measuring.held(box.directory)
        except FileNotFoundError:  # it is closed already
            os.close(box.pidfd)
            return
        self._boxes[box.pidfd] = box
        self._poll.register(box.pidfd, select.POLLIN)

    def _forget(self, pidfd: int) -> None:
        self._poll.unregister(pidfd)
        del self._boxes[pidfd]
        os.close(pidfd)

    def _look(self, now: float) -> None:
        bounded = [box for box in self._boxes.values() if box.disk is not None]
        if not bounded:
            return
        around = measuring.held(bounded[0].directory)
        changed, self._last = around != self._last, around
        self._pause = _BUSY if changed else _CALM
        for box in bounded:
            most = box.used + around - box.around
            # What one sandbox writes while another removes as much does not show, so each is measured now and then.
            pause = _AT_MOST_EVERY if box.allowed == box.disk else _AT_MOST_EVERY_OVER
            box.stale |= changed
            due = box.stale and now > self._rested and now > box.measured + pause
            if most > box.allowed and (most > 2 * box.allowed or now > box.measured + _HASTE * box.cost):
                self._measure(box, around, most)
            elif due:
                self._measure(box, around, most)
                self._rested = time.monotonic() + _SHARE * box.cost

    def _measure(self, box: _Box, around: int, most: int) -> None:
        begin = time.monotonic()
        box.stale = False
        try:
            box.used = measuring.named(box.directory)
            if box.disk is not None and most > box.disk:
                box.used += measuring.nameless(box.pidfd)
        except FileNotFoundError:
            box.stale = True
            return  # files vanish while they are counted; the next look comes soon
        except OSError:
            box.used = most  # a tree too deep to be walked: nobody needs one, and it must not hide files
        box.around, box.measured = around, time.monotonic()
        box.cost = box.measured - begin
        if box.disk is not None and box.used > box.allowed:
            self._stop(box, box.disk)
        box.allowed = max(box.disk or 0, min(box.allowed, box.used + _SLACK))

    def _stop(self, box: _Box, disk: int) -> None:
        if box.used > 2 * disk + _TOO_MUCH:
            self._end(box, f"it wrote {box.used} bytes, far beyond its limit disk={disk}")
            return
        _note(box)
        self._sweep(box.pidfd)
        _note(box)
        with contextlib.suppress(OSError):
            box.used = measuring.named(box.directory)
        box.allowed = max(disk, box.used + _SLACK)

    def _end(self, box: _Box, cause: str) -> None:
        box.end = float("inf")
        with contextlib.suppress(OSError), open(os.path.join(box.directory, CAUSE), "w") as file:
            file.write(cause)
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(box.pidfd, signal.SIGKILL)


def _note(box: _Box) -> None:
    with contextlib.suppress(OSError), open(os.path.join(box.directory, OVERRUNS), "ab") as file:
        file.write(MOMENT.pack(processes.now()))


def start(requests: socket.socket, sweep: Callable[[int], None]) -> socket.socket:
    """Fork a warden; returns the socket to ``watch`` through."""
    ours, theirs = wire.pair()
    if os.fork():
        theirs.close()
        return ours
    try:
        requests.close()
        ours.close()
        syscalls.set_name("warden")
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        with contextlib.suppress(PermissionError):
            os.nice(-_URGENCY)  # on a busy machine, what it holds back would else run on for as long as it waits
        Warden(theirs, sweep).serve()
    finally:
        os._exit(1)


def watch(warden: socket.socket, pidfd: int, directory: str, disk: int | None, wall: float | None) -> None:
    """Hold the sandbox whose writable layers lie in ``directory`` to these limits (bytes, seconds)."""
    if disk is None and wall is None:
        return
    try:
        wire.send(warden, {"directory": directory, "disk": disk, "wall": wall}, [pidfd])
    except OSError:
        os._exit(1)  # the warden was killed: better that all sandboxes end than that they run without limits
