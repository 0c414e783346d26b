"""The shortest edit script between two lists, after E. W. Myers (1986)."""

from __future__ import annotations

from collections.abc import Sequence


def script(old: Sequence[str], new: Sequence[str]) -> list[tuple[str, str]]:
    """(sign, item) for each item: a space for both, ``-`` for old only, ``+`` for new only; deletions first."""
    start = 0
    while start < min(len(old), len(new)) and old[start] == new[start]:
        start += 1
    end = 0
    while end < min(len(old), len(new)) - start and old[-1 - end] == new[-1 - end]:
        end += 1
    middle = _middle(old[start : len(old) - end], new[start : len(new) - end])
    kept = [(" ", item) for item in old[:start]]
    return kept + _deletions_first(middle) + [(" ", item) for item in old[len(old) - end :]]


def _middle(old: Sequence[str], new: Sequence[str]) -> list[tuple[str, str]]:
    furthest = {1: 0}
    trace: list[dict[int, int]] = []
    for edits in range(len(old) + len(new) + 1):
        trace.append(dict(furthest))
        for diagonal in range(-edits, edits + 1, 2):
            x = _step(furthest, diagonal, edits)
            y = x - diagonal
            while x < len(old) and y < len(new) and old[x] == new[y]:
                x, y = x + 1, y + 1
            furthest[diagonal] = x
            if x >= len(old) and y >= len(new):
                return _backwards(trace, old, new)
    raise AssertionError("deleting all and inserting all is always a script")


def _step(furthest: dict[int, int], diagonal: int, edits: int) -> int:
    """Where the edit leads that reaches furthest on this diagonal."""
    down = diagonal == -edits or (diagonal != edits and furthest[diagonal - 1] < furthest[diagonal + 1])
    return furthest[diagonal + 1] if down else furthest[diagonal - 1] + 1


def _backwards(trace: list[dict[int, int]], old: Sequence[str], new: Sequence[str]) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    x, y = len(old), len(new)
    for edits in range(len(trace) - 1, 0, -1):
        furthest, diagonal = trace[edits], x - y
        down = diagonal == -edits or (diagonal != edits and furthest[diagonal - 1] < furthest[diagonal + 1])
        before = furthest[diagonal + 1] if down else furthest[diagonal - 1]
        previous = before - (diagonal + 1 if down else diagonal - 1)
        while x > before + (not down) and y > previous + down:
            x, y = x - 1, y - 1
            found.append((" ", old[x]))
        found.append(("+", new[previous]) if down else ("-", old[before]))
        x, y = before, previous
    found += [(" ", item) for item in reversed(old[:x])]
    return found[::-1]


def _deletions_first(found: list[tuple[str, str]]) -> list[tuple[str, str]]:
    ordered: list[tuple[str, str]] = []
    inserted: list[tuple[str, str]] = []
    for sign, item in found:
        if sign == "+":
            inserted.append((sign, item))
            continue
        if sign == " ":
            ordered += inserted
            inserted = []
        ordered.append((sign, item))
    return ordered + inserted
