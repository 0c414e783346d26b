"""Periods of time as people write them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, timedelta

_FORM = re.compile(r"(\d{4})(?:-Q([1-4])|-(\d{2})(?:-(\d{2}))?)?")


@dataclass(frozen=True)
class Period:
    """From ``first`` to ``last``, both days included."""

    first: date
    last: date

    def __contains__(self, day: date) -> bool:
        return self.first <= day <= self.last


def parse(text: str) -> Period:
    """A period such as ``2024``, ``2024-Q3``, ``2024-05``, ``2024-05-17`` or ``2024-05..2024-06-15``."""
    start, dots, end = text.partition("..")
    if not dots:
        return _single(text)
    period = Period(_single(start).first, _single(end).last)
    if period.last < period.first:
        raise ValueError(f"the period {text!r} ends before it begins")
    return period


def _single(text: str) -> Period:
    match = _FORM.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"not a period: {text!r}")
    year, quarter, month, day = (int(part) if part else None for part in match.groups())
    if quarter:
        return _months(year, 3 * quarter - 2, 3)
    if month and day:
        only = date(year, month, day)
        return Period(only, only)
    return _months(year, month, 1) if month else _months(year, 1, 12)


def _months(year: int, month: int, count: int) -> Period:
    after = month - 1 + count
    following = date(year + after // 12, after % 12 + 1, 1)
    return Period(date(year, month, 1), following - timedelta(days=1))
