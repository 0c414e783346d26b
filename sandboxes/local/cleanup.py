"""Removal in the background, so that closing a sandbox does not wait for the disk; finished before the process
ends (``launcher`` sees to that)."""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections.abc import Callable

_log = logging.getLogger(__name__)


class _Worker:
    def __init__(self) -> None:
        # Both may be entered again by a finalizer, in the same thread.
        self.tasks: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None

    def add(self, task: Callable[[], object]) -> None:
        self.tasks.put(task)
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="forkgym-cleanup", daemon=True)
                self._thread.start()

    def _work(self) -> None:
        while True:
            task = self.tasks.get()
            try:
                task()
            except Exception as error:
                # What stays is swept at the next start, as after a crash.
                _log.warning("clean-up of a sandbox failed: %s", error)


_worker = _Worker()


def later(task: Callable[[], object]) -> None:
    """Run ``task`` soon, in order."""
    _worker.add(task)


def wait() -> None:
    """Wait until everything handed in so far is done."""
    done = threading.Event()
    later(done.set)
    done.wait()


def _after_fork_in_child() -> None:
    global _worker
    _worker = _Worker()


os.register_at_fork(after_in_child=_after_fork_in_child)
