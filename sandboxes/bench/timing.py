"""How long one thing takes, many times over. Times are milliseconds."""

from __future__ import annotations

import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass


@dataclass(frozen=True)
class Timing:
    """Wall times of one operation, in milliseconds."""

    samples: Sequence[float]

    @property
    def p50(self) -> float:
        return statistics.median(self.samples)

    @property
    def p95(self) -> float:
        ordered = sorted(self.samples)
        return ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]

    @property
    def mean(self) -> float:
        return statistics.fmean(self.samples)

    def __str__(self) -> str:
        return f"{self.p50:.2f} / {self.p95:.2f}"

    def report(self) -> dict[str, float]:
        """For JSON."""
        return {"n": len(self.samples), "p50_ms": self.p50, "p95_ms": self.p95, "mean_ms": self.mean,
                "min_ms": min(self.samples)}  # fmt: skip


def measure(
    operation: Callable[[], object],
    n: int,
    *,
    warmup: int = 3,
    before: Callable[[], object] | None = None,
    after: Callable[[], object] | None = None,
) -> Timing:
    """Time ``operation`` ``n`` times, one after the other; ``before`` and ``after`` run untimed around each."""
    samples: list[float] = []
    for index in range(-warmup, n):
        if before is not None:
            before()
        start = time.perf_counter()
        operation()
        passed = time.perf_counter() - start
        if after is not None:
            after()
        if index >= 0:
            samples.append(passed * 1000)
    return Timing(samples)


def measure_command(command: Sequence[str], n: int, *, warmup: int = 1) -> Timing:
    """Time a host command from start to exit."""
    return measure(lambda: subprocess.run(command, check=True, capture_output=True), n, warmup=warmup)


def measure_rate(operation: Callable[[], object], concurrency: int, seconds: float) -> tuple[float, Timing]:
    """Operations per second with this many threads, none of which starts another after ``seconds``; and each's time."""
    samples: list[float] = []
    lock = threading.Lock()
    begin = time.perf_counter()

    def work() -> None:
        while (start := time.perf_counter()) < begin + seconds:
            operation()
            with lock:
                samples.append((time.perf_counter() - start) * 1000)

    with ThreadPoolExecutor(concurrency) as threads:
        for done in [threads.submit(work) for _ in range(concurrency)]:
            done.result()
    return len(samples) / (time.perf_counter() - begin), Timing(samples)
