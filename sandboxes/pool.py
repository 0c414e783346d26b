"""Warm sandboxes: taken in no time, used once, and replaced in the background.

with Pool({"image": "host", "limits": {"memory": "512M"}}, size=8) as pool, pool.take(timeout=30) as box: ...
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

from forkgym import sandboxes
from forkgym.errors import ConfigError
from forkgym.sandboxes import slots
from forkgym.sandboxes.base import Sandbox, SandboxSpec
from forkgym.sandboxes.errors import SandboxDeadError, SandboxError, SandboxTimeoutError

_log = logging.getLogger(__name__)
_STARTERS = 8  # sandboxes started or removed at the same time
_RETRY = 0.1  # seconds between attempts while somebody waits


@dataclass(frozen=True)
class PoolStats:
    """``warm``, ``taken`` and ``alive`` (these and those starting or ending) are of now, the others of all time.

    ``broken`` sandboxes had died while they were warm; ``failed`` counts attempts to start one.
    """

    warm: int
    taken: int
    alive: int
    created: int
    broken: int
    failed: int


class Pool:
    """Keeps ``size`` sandboxes ready and has at most ``max_alive`` (default: ``size``) at any time.

    ``spec`` is a ``SandboxSpec`` or the options of ``create``, such as ``snapshot``. A sandbox is taken once: what a
    user did to it ends with it. Every method may be called from any thread of the process that made the pool. Pools
    with the same ``share``, also of other processes, have ``max_alive`` together and ``size`` each, warm ones included.
    The first sandbox is started at once, so that wrong options raise here. Raises ``ConfigError``, ``SandboxError``.
    """

    def __init__(
        self,
        spec: SandboxSpec | Mapping[str, Any] | None = None,
        size: int = 4,
        backend: str = "local",
        *,
        max_alive: int | None = None,
        share: str | None = None,
    ) -> None:
        most = size if max_alive is None else max_alive
        if not isinstance(size, int) or not isinstance(most, int) or not 1 <= size <= most:  # pyright: ignore
            raise ConfigError(f"a pool of size {size!r} and max_alive {max_alive!r}: give 1 <= size <= max_alive")
        if isinstance(spec, Mapping) and "backend" in spec:
            raise ConfigError("the spec of a pool holds 'backend'; it is an option of its own: Pool(spec, backend=...)")
        if isinstance(spec, SandboxSpec):
            self._create: Callable[[], Sandbox] = partial(sandboxes.backend(backend).create, spec)
        else:
            self._create = partial(sandboxes.create, backend, **(spec or {}))
        self._shared = slots.Slots(share, most) if share is not None else None
        self._size, self._ceiling = size, most if share is None else size
        self._process = os.getpid()
        self._changed = threading.Condition()
        self._warm: deque[Sandbox] = deque()
        self._slots: dict[str, int] = {}
        self._taken = self._created = self._broken = self._failed = 0
        self._last_error: Exception | None = None
        self._closed = False
        self._workers = ThreadPoolExecutor(min(_STARTERS, self._ceiling), "forkgym-pool")
        self._alive = self._starting = 1
        self._start()
        if self._last_error is not None:
            self.close()
            raise self._last_error
        with self._changed:
            self._refill()

    @contextlib.contextmanager
    def take(self, timeout: float = 60.0) -> Generator[Sandbox]:
        """A fresh sandbox until the end of the block; waits up to ``timeout`` seconds for one.

        Raises ``SandboxTimeoutError``, which names the last failure to start one, and ``SandboxDeadError`` if the
        pool is closed.
        """
        if not timeout >= 0:
            raise ConfigError(f"timeout is {timeout!r}; give a number of seconds, 0 for what is ready now")
        box = self._next(time.monotonic() + timeout, timeout)
        try:
            yield box
        finally:
            self._give_back(box)

    def stats(self) -> PoolStats:
        """The numbers of this moment."""
        with self._changed:
            return PoolStats(len(self._warm), self._taken, self._alive, self._created, self._broken, self._failed)

    def close(self) -> None:
        """Remove what is warm and refuse new takers; sandboxes in use end with their blocks. Idempotent."""
        if os.getpid() != self._process:
            return
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            while self._warm:
                self._workers.submit(self._end, self._warm.popleft())
        self._workers.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _next(self, deadline: float, timeout: float) -> Sandbox:
        if os.getpid() != self._process:
            raise SandboxDeadError("a pool belongs to the process that made it; make one in this process")
        with self._changed:
            while True:
                if self._closed:
                    raise SandboxDeadError("the pool is closed")
                while self._warm:
                    box = self._warm.popleft()
                    if box.alive:
                        self._taken += 1
                        self._refill()
                        return box
                    self._broken += 1
                    self._workers.submit(self._end, box)
                self._refill()
                left = deadline - time.monotonic()
                if left <= 0:
                    raise SandboxTimeoutError(self._why(timeout)) from self._last_error
                self._changed.wait(min(left, _RETRY))

    def _why(self, timeout: float) -> str:
        """Why there is no sandbox. Holds the lock."""
        cause = f"the last attempt to start one failed: {self._last_error}"
        if self._last_error is None:
            others = ", less what others hold that share its places" if self._shared is not None else ""
            cause = f"{self._taken} of this pool are in use, and it may have {self._ceiling}{others}. Raise max_alive"
        return f"no sandbox was free within {timeout:g} s: {cause}"

    def _give_back(self, box: Sandbox) -> None:
        if os.getpid() != self._process:
            return
        with self._changed:
            self._taken -= 1
            if not self._closed:
                self._workers.submit(self._end, box)
                return
        self._end(box)

    def _refill(self) -> None:
        """Start what is missing. Holds the lock."""
        while not self._closed and len(self._warm) + self._starting < self._size and self._alive < self._ceiling:
            self._alive += 1
            self._starting += 1
            self._workers.submit(self._start)

    def _start(self) -> None:
        """Start one sandbox that is already counted; a failure is kept for those who wait."""
        box, slot, error = None, None, None
        try:
            slot = self._shared.claim() if self._shared is not None else None
            if slot is not None or self._shared is None:
                box = self._create()
        except Exception as failure:
            error = failure
            if slot is not None:
                slots.release(slot)
        with self._changed:
            self._starting -= 1
            self._last_error = error
            self._failed += error is not None
            if box is None:
                self._alive -= 1
                return  # who waits tries again after a pause
            self._created += 1
            if slot is not None:
                self._slots[box.id] = slot
            if not self._closed:
                self._warm.append(box)
                self._changed.notify_all()
                return
        self._end(box)

    def _end(self, box: Sandbox) -> None:
        """Remove a sandbox, and let another one start in its place."""
        try:
            box.close()
        except SandboxError as error:
            _log.warning("a sandbox of the pool could not be removed: %s", error)
        with self._changed:
            self._alive -= 1
            if box.id in self._slots:
                slots.release(self._slots.pop(box.id))
            self._refill()
