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
        self._ready: dict[int, Callable[[int], None]] = {}
        self.watch(self._wake[0], select.POLLIN, self._welcome)
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

    def watch(self, fd: int, events: int, action: Callable[[int], None]) -> None:
        """Call ``action`` with what happened to ``fd``; only from our thread."""
        self._poll.register(fd, events)
        self._ready[fd] = action

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

    def _welcome(self, _: int) -> None:
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
                if action := self._ready.get(fd):  # one before it may have closed this one
                    action(event)
            if time.monotonic() - looked > _PULSE:
                looked = time.monotonic()
                for link in self._links:
                    link.feel_pulse(looked)
            self._links = {link for link in self._links if not link.ended}


_bridge: Bridge | None = None
_making = threading.Lock()


def bridge() -> Bridge:
    """The one of this process."""
    global _bridge
    with _making:
        if _bridge is None:
            _bridge = Bridge()
        return _bridge
