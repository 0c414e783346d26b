"""Shared by the speed benchmarks: timing, tables, and a description of the machine. Times are milliseconds."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


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

    def __str__(self) -> str:
        return f"{self.p50:.2f} / {self.p95:.2f}"


@dataclass
class Section:
    """One table of RESULTS.md. ``broken`` lists targets that were missed."""

    title: str
    columns: Sequence[str]
    rows: list[Sequence[str]] = field(default_factory=list[Sequence[str]])
    notes: list[str] = field(default_factory=list[str])
    broken: list[str] = field(default_factory=list[str])

    def check(self, what: str, value: float, limit: float, unit: str = "ms") -> str:
        """``value`` against its target, as text for the table."""
        met = value <= limit
        if not met:
            self.broken.append(f"{what}: {value:.2f} {unit}, target {limit:g} {unit}")
        return f"≤ {limit:g} {unit}: {'met' if met else 'MISSED'}"

    def markdown(self) -> str:
        """The section as Markdown."""
        lines = [f"## {self.title}", "", _line(self.columns), _line(["---"] * len(self.columns))]
        lines += [_line(row) for row in self.rows]
        for note in self.notes:
            lines += ["", note]
        return "\n".join(lines) + "\n"


def measure(
    operation: Callable[[], object], n: int, *, warmup: int = 3, after: Callable[[], object] | None = None
) -> Timing:
    """Time ``operation`` ``n`` times, one after the other. ``after`` runs untimed after each, to clean up."""
    samples: list[float] = []
    for index in range(-warmup, n):
        start = time.perf_counter()
        operation()
        passed = time.perf_counter() - start
        if after is not None:
            after()
        if index >= 0:
            samples.append(passed * 1000)
    return Timing(samples)


def measure_command(
    command: Sequence[str], n: int, *, warmup: int = 1, after: Callable[[], object] | None = None
) -> Timing:
    """Time a host command from start to exit."""
    return measure(lambda: subprocess.run(command, check=True, capture_output=True), n, warmup=warmup, after=after)


def machine() -> str:
    """The machine in one line."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    load = os.getloadavg()[0]
    who = "root" if os.getuid() == 0 else "ordinary user"
    return (
        f"{os.cpu_count()} cores ({_cpu()}), {memory:.0f} GiB, {platform.system()} {platform.release()}, "
        f"Python {platform.python_version()}, load {load:.1f} at the start, {who}"
    )


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
