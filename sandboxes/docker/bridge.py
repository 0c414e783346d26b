"""Sandboxes of daemons whose host shares no socket with us: what their first processes and their owner say to each
other goes over streams of bytes.

For the owner nothing changes: it sends messages and descriptors into a socket. One thread serves the other ends of the
sockets of all sandboxes, and forwards both in frames to the ``guest.relay`` inside.
"""

from __future__ import annotations

import contextlib
import os
import queue
import select
import threading
import time
from collections.abc import Callable
from typing import Any

from forkgym.sandboxes.docker.link import Bytes, Link, Pipes
from forkgym.sandboxes.local import launcher

_PULSE = 5.0  # seconds between looks at the clock


class Bridge:
    """The thread and its links. It is started by the first, and waits for work when there is none."""

    def __init__(self) -> None:
        self._new: queue.SimpleQueue[Link] = queue.SimpleQueue()
        self._links: set[Link] = set()
        self.pipes: Pipes = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._poll = select.poll()
        self._ready: dict[int, tuple[Callable[[int], None], Link]] = {}
        self._poll.register(self._wake[0], select.POLLIN)
        launcher.owned.add(self)

    def connect(self, stream: Bytes, *, once: bool = False, notes: dict[str, str] | None = None) -> Link:
        """Carry messages over ``stream``. ``once``: it serves one command, and ends with what that has printed.

        ``notes``: where to write what the accounts of the container say.
        """
        link = Link(self, stream, once=once, notes=notes)
        self._new.put(link)
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="forkgym-bridge", daemon=True)
                self._thread.start()
        os.write(self._wake[1], b"1")
        return link

    def watch(self, fd: int, events: int, action: Callable[[int], None], link: Link) -> None:
        """Call ``action`` of ``link`` with what happened to ``fd``; only from our thread."""
        self._poll.register(fd, events)
        self._ready[fd] = action, link

    def unwatch(self, fd: int) -> None:
        """No longer."""
        if self._ready.pop(fd, None):
            self._poll.unregister(fd)

    def close(self) -> None:
        """At the end of the process, after the sandboxes: nothing is left to be done."""

    def forget(self) -> None:
        """In a forked child, which has no such thread: the connections are the parent's alone."""
        while not self._new.empty():
            self._links.add(self._new.get())
        for link in self._links:
            link.drop()
        for fd in self._wake:
            os.close(fd)
        global _bridge, _making
        _bridge, _making = None, threading.Lock()

    def _welcome(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake[0], 1 << 16)
        while not self._new.empty():
            link = self._new.get()
            self._links.add(link)
            link.start()

    def _serve(self) -> None:
        looked = time.monotonic()
        while True:
            for fd, event in self._poll.poll(_PULSE * 1000):
                if fd == self._wake[0]:
                    self._welcome()
                elif found := self._ready.get(fd):  # one before it may have closed this one
                    action, link = found
                    _attempt(link, action, event)
            if time.monotonic() - looked > _PULSE:
                looked = time.monotonic()
                for link in self._links:
                    _attempt(link, link.feel_pulse, looked)
            self._links = {link for link in self._links if not link.ended}


def _attempt(link: Link, action: Callable[[Any], None], argument: object) -> None:
    """What goes wrong with one link ends that one, and none of the others, which have the same thread."""
    try:
        action(argument)
    except Exception as error:
        link.end(f"{type(error).__name__}: {error}")


_bridge: Bridge | None = None
_making = threading.Lock()


def bridge() -> Bridge:
    """The one of this process."""
    global _bridge
    with _making:
        if _bridge is None:
            _bridge = Bridge()
        return _bridge
