"""Amounts as integers of cents."""

from __future__ import annotations

import re

_AMOUNT = re.compile(r"([-+]?)(\d+)(?:\.(\d{1,2}))?")


def parse(text: str) -> int:
    """Cents of a decimal such as ``-12.5``. Raises ``ValueError``."""
    match = _AMOUNT.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"not an amount: {text!r}")
    sign, whole, part = match.groups()
    cents = int(whole) * 100 + int((part or "0").ljust(2, "0"))
    return -cents if sign == "-" else cents


def show(cents: int) -> str:
    """The decimal of an amount in cents."""
    whole, part = divmod(abs(cents), 100)
    sign = "-" if cents < 0 else ""
    return f"{sign}{whole}.{part:02d}"


def share(total: int, weights: list[int]) -> list[int]:
    """Divide ``total`` cents by weights. Raises ``ValueError`` unless all weights are at least 0 and one is above."""
    whole = sum(weights)
    if whole <= 0 or min(weights) < 0:
        raise ValueError("weights must be 0 or more, and not all 0")
    size = abs(total)
    shares = [size * weight // whole for weight in weights]
    # Stable: the first named wins a tie.
    order = sorted(range(len(weights)), key=lambda index: -(size * weights[index] % whole))
    for index in order[: size - sum(shares)]:
        shares[index] += 1
    return [-part for part in shares] if total < 0 else shares
