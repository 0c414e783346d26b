"""Shared by the speed benchmarks: tables with targets, and a description of the machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


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
        return self._judge(what, value, value <= limit, f"≤ {limit:g} {unit}")

    def check_least(self, what: str, value: float, limit: float, unit: str) -> str:
        """As ``check``, for what should be large."""
        return self._judge(what, value, value >= limit, f"≥ {limit:g} {unit}")

    def _judge(self, what: str, value: float, met: bool, target: str) -> str:
        if not met:
            self.broken.append(f"{what}: {value:.2f}, target {target}")
        return f"{target}: {'met' if met else 'MISSED'}"

    def markdown(self) -> str:
        """The section as Markdown."""
        lines = [f"## {self.title}", "", _line(self.columns), _line(["---"] * len(self.columns))]
        lines += [_line(row) for row in self.rows]
        for note in self.notes:
            lines += ["", note]
        return "\n".join(lines) + "\n"


def describe(machine: Mapping[str, Any]) -> str:
    """What ``forkgym.sandboxes.bench.machine`` found, in one line."""
    return (
        f"{machine['cores']} cores ({machine['cpu']}), {machine['memory_bytes'] / 2**30:.0f} GiB, {machine['kernel']}, "
        f"Python {machine['python']}, load {machine['load']:.1f} at the start, "
        f"{'root' if machine['root'] else 'ordinary user'}"
    )


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
