"""Entries by key, with a limit and a time to live."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

from larder.flight import Flights

_MISSING = object()


class Cache:
    """See the README for what is kept and for how long."""

    def __init__(
        self, limit: int = 1024, ttl: float | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        if limit < 1:
            raise ValueError(f"limit must be at least 1, not {limit}")
        if ttl is not None and ttl <= 0:
            raise ValueError(f"ttl must be above 0 seconds, not {ttl}")
        self._limit = limit
        self._ttl = ttl
        self._clock = clock
        self._lock = threading.RLock()
        self._entries: OrderedDict[Hashable, tuple[Any, float]] = OrderedDict()
        self._flights = Flights()
        self._counts = {"hits": 0, "misses": 0, "evictions": 0}

    def get(self, key: Hashable, default: Any = None) -> Any:
        value = self._find(key)
        return default if value is _MISSING else value

    def set(self, key: Hashable, value: Any) -> None:
        with self._lock:
            now = self._clock()
            self._entries[key] = (value, now)
            self._entries.move_to_end(key)
            if len(self._entries) > self._limit:
                self._make_room(now)

    def load(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """The entry, made by ``make()`` if there is none; one thread makes it, the others wait."""
        value = self._find(key)
        if value is not _MISSING:
            return value
        return self._flights.run(key, lambda: self._fresh(key, make))

    def delete(self, key: Hashable) -> bool:
        """Whether there was such an entry."""
        with self._lock:
            found = key in self
            self._entries.pop(key, None)
            return found

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()

    def stats(self) -> dict[str, int]:
        with self._lock:
            return dict(self._counts)

    def __len__(self) -> int:
        with self._lock:
            now = self._clock()
            return sum(not self._is_over(since, now) for _, since in self._entries.values())

    def __contains__(self, key: Hashable) -> bool:
        with self._lock:
            entry = self._entries.get(key)
            return entry is not None and not self._is_over(entry[1], self._clock())

    def _find(self, key: Hashable) -> Any:
        with self._lock:
            entry = self._entries.get(key)
            if entry is None or self._is_over(entry[1], self._clock()):
                self._entries.pop(key, None)
                self._counts["misses"] += 1
                return _MISSING
            self._entries.move_to_end(key)
            self._counts["hits"] += 1
            return entry[0]

    def _fresh(self, key: Hashable, make: Callable[[], Any]) -> Any:
        # Another thread may have made it between our look and our turn.
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None and not self._is_over(entry[1], self._clock()):
                return entry[0]
        value = make()
        self.set(key, value)
        return value

    def _make_room(self, now: float) -> None:
        over = [key for key, (_, since) in self._entries.items() if self._is_over(since, now)]
        for key in over:
            del self._entries[key]
        while len(self._entries) > self._limit:
            self._entries.popitem(last=False)
            self._counts["evictions"] += 1

    def _is_over(self, since: float, now: float) -> bool:
        return self._ttl is not None and now - since >= self._ttl
