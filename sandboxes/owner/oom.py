"""Which commands ran while the kernel killed for want of memory: it tells only how often it did in a whole sandbox."""

from __future__ import annotations

import threading
from collections import deque

_LOOKS = 256


class Kills:
    """Readings of a sandbox's counter. Of commands that run side by side, all that a killing falls into are told.

    Seconds are those since boot. Any thread may ask.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._looks: deque[tuple[float, int]] = deque([(0.0, 0)], maxlen=_LOOKS)

    @property
    def seen(self) -> int:
        """The highest reading so far."""
        return self._looks[-1][1]

    def during(self, begin: float, end: float, count: int) -> bool:
        """True if the counter, which says ``count`` at the ``end`` of a command, may have grown since its ``begin``."""
        with self._lock:
            before = [known for when, known in self._looks if when <= begin]
            self._looks.append((end, max(count, self._looks[-1][1])))
        return count > (max(before) if before else self._looks[0][1])
