"""Signs that a policy collapses, read from the metrics of the last steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from forkgym.trainers.sections import MonitorSection


def signs(section: MonitorSection, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What has been wrong in each of the last ``patience`` steps, in words; ``rows`` are all training rows so far."""
    if len(rows) < section.patience:
        return []
    first, last = rows[0], rows[-section.patience :]
    length = first.get("tokens_per_episode", 0.0)
    found = [
        _sign(last, "entropy", section.entropy, above=False, words="the entropy of the sampled tokens"),
        _sign(last, "duplicate_rate", section.duplicates, above=True, words="the share of repeated episodes"),
        _sign(last, "zero_signal_rate", section.silent, above=True, words="the share of groups without signal"),
        _sign(
            last, "tokens_per_episode", None if section.length is None else section.length * length, above=False,
            words=f"the sampled tokens of an episode, {length:.4g} in the first step,",
        ),
    ]  # fmt: skip
    return [sign for sign in found if sign]


def _sign(rows: Sequence[Mapping[str, Any]], name: str, bound: float | None, *, above: bool, words: str) -> str:
    values = [float(row[name]) for row in rows if name in row]
    if bound is None or len(values) < len(rows):
        return ""
    if not all(value > bound if above else value < bound for value in values):
        return ""
    shown = " ".join(f"{value:.3g}" for value in values)
    return f"{words} stayed {'above' if above else 'below'} {bound:.3g} for {len(values)} steps: {shown}"
