"""One thread works, the others wait for what comes out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Any


class _Flight:
    def __init__(self) -> None:
        self.done = threading.Event()
        self.value: Any = None
        self.error: BaseException | None = None


class Flights:
    """Work under way, by key."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._under_way: dict[Hashable, _Flight] = {}

    def run(self, key: Hashable, work: Callable[[], Any]) -> Any:
        """What ``work()`` returns or raises: here, or in the thread that works on the same key now."""
        with self._lock:
            flight = self._under_way.get(key)
            first = flight is None
            if flight is None:
                flight = self._under_way[key] = _Flight()
        if first:
            self._fly(key, flight, work)
        else:
            flight.done.wait()
        if flight.error is not None:
            raise flight.error
        return flight.value

    def _fly(self, key: Hashable, flight: _Flight, work: Callable[[], Any]) -> None:
        try:
            flight.value = work()
        except BaseException as error:
            flight.error = error
        finally:
            with self._lock:
                del self._under_way[key]
            flight.done.set()
