"""One field of a cron expression."""

from __future__ import annotations

from dataclasses import dataclass


class CronError(ValueError):
    """An expression that cannot be read."""


class NeverError(CronError):
    """An expression that never comes true."""


@dataclass(frozen=True)
class Kind:
    """What a field counts, and the names that stand for its numbers."""

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()


MINUTE = Kind("minute", 0, 59)
HOUR = Kind("hour", 0, 23)
DAY = Kind("day of the month", 1, 31)
MONTH = Kind("month", 1, 12, ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"))
WEEKDAY = Kind("day of the week", 0, 7, ("sun", "mon", "tue", "wed", "thu", "fri", "sat"))


@dataclass(frozen=True)
class Field:
    values: frozenset[int]
    restricted: bool


def parse(text: str, kind: Kind) -> Field:
    """Raises ``CronError``, which names the field."""
    values: set[int] = set()
    for part in text.split(","):
        values |= _part(part, kind)
    if kind is WEEKDAY:
        values = {value % 7 for value in values}
    return Field(frozenset(values), not text.startswith("*"))


def _part(text: str, kind: Kind) -> set[int]:
    span, slash, step_text = text.partition("/")
    step = _step(step_text, kind) if slash else 1
    if span == "*":
        low, high = kind.low, kind.high
    elif "-" in span:
        first, _, last = span.partition("-")
        low, high = _number(first, kind), _number(last, kind)
    else:
        low = _number(span, kind)
        high = kind.high if slash else low
    if high < low:
        raise CronError(f"{kind.name}: {text!r} runs backwards")
    return set(range(low, high + 1, step))


def _number(text: str, kind: Kind) -> int:
    if text.lower() in kind.names:
        return kind.names.index(text.lower()) + (kind.low if kind is MONTH else 0)
    if not (text.isascii() and text.isdigit()):
        raise CronError(f"{kind.name}: {text!r} is not a number")
    number = int(text)
    if not kind.low <= number <= kind.high:
        raise CronError(f"{kind.name}: {number} is not in {kind.low}-{kind.high}")
    return number


def _step(text: str, kind: Kind) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) == 0:
        raise CronError(f"{kind.name}: the step {text!r} is not a number above 0")
    return int(text)
