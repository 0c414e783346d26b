"""Patches, applied."""

from __future__ import annotations

from collections.abc import Iterator

from seam.texts import Conflict, Patch, split

LIMIT = 1000


def apply(text: str, patch: Patch, reverse: bool = False, limit: int = LIMIT) -> str:
    """The text with all hunks applied. Raises ``Conflict`` if one has no place."""
    lines = split(text)
    out: list[str] = []
    done = moved = 0  # lines of the text that are dealt with; how far the last hunk was from its own line
    for number, hunk in enumerate(patch.hunks, 1):
        old, new, start = (hunk.new, hunk.old, hunk.new_start) if reverse else (hunk.old, hunk.new, hunk.old_start)
        place = _place(lines, old, start - 1 + moved, done, limit)
        if place is None:
            raise Conflict(number)
        moved = place - (start - 1)
        out += lines[done:place] + new
        done = place + len(old)
    return "".join(out + lines[done:])


def _place(lines: list[str], old: list[str], wanted: int, earliest: int, limit: int) -> int | None:
    """Where the old lines stand, nearest to where they are wanted."""
    for place in _nearest(wanted, limit):
        if earliest <= place <= len(lines) - len(old) and lines[place : place + len(old)] == old:
            return place
    return None


def _nearest(wanted: int, limit: int) -> Iterator[int]:
    yield wanted
    for distance in range(1, limit + 1):
        yield wanted - distance
        yield wanted + distance

