"""Watches a harness from outside while it runs, and ends it when nothing more can come of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forkgym.agents.gateway.session import Session

_POLL = 0.2  # seconds
_GRACE = 2.0  # after the end of its budget, for a harness that ends by itself
_CONTEXT_GRACE = 30.0  # after a prompt that did not fit: some harnesses shorten it and go on


class Watch:
    """A context manager around the harness's run. ``stalled`` says that ``end`` was called since it did nothing.

    ``end`` makes the run return.
    """

    def __init__(self, session: Session, stall: float, end: Callable[[], None]) -> None:
        self.stalled = False
        self._session, self._stall, self._end = session, stall, end
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="forkgym-harness-watch", daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        since, told = time.monotonic(), ""
        while not self._over.wait(_POLL):
            now, ended = time.monotonic(), self._session.ended
            if ended != told:
                since, told = now, ended
            self.stalled = self.stalled or (not ended and self._session.idle > self._stall)
            if self.stalled or (ended and now - since > (_CONTEXT_GRACE if ended == "context" else _GRACE)):
                self._end()  # again until it has ended: it may not even have begun yet
