"""The unified format, written and read."""

from __future__ import annotations

import re

from seam.myers import script
from seam.texts import Hunk, Patch, PatchError, split

NO_NEWLINE = "\\ No newline at end of file\n"
_HEADER = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@.*")


def diff(old: str, new: str, old_name: str = "a", new_name: str = "b", context: int = 3) -> str:
    """A patch that turns ``old`` into ``new``; empty if they are equal."""
    hunks = group(script(split(old), split(new)), context)
    if not hunks:
        return ""
    return f"--- {old_name}\n+++ {new_name}\n" + "".join(map(_shown, hunks))


def group(edits: list[tuple[str, str]], context: int) -> list[Hunk]:
    """The hunks of an edit script."""
    changed = [place for place, (sign, _) in enumerate(edits) if sign != " "]
    spans: list[list[int]] = []
    for place in changed:
        if spans and place - spans[-1][1] - 1 <= 2 * context:
            spans[-1][1] = place
        else:
            spans.append([place, place])
    found: list[Hunk] = []
    for first, last in spans:
        start, end = max(0, first - context), min(len(edits), last + 1 + context)
        before = edits[:start]
        old_start = 1 + sum(sign != "+" for sign, _ in before)
        new_start = 1 + sum(sign != "-" for sign, _ in before)
        found.append(Hunk(old_start, new_start, edits[start:end]))
    return found


def parse(text: str) -> Patch:
    """The patch of one file. Raises ``PatchError``."""
    lines = split(text)
    at = next((place for place, line in enumerate(lines) if line.startswith("--- ")), None)
    if at is None:
        raise PatchError(1, "there is no line that begins with '---'")
    if at + 1 >= len(lines) or not lines[at + 1].startswith("+++ "):
        raise PatchError(at + 2, "expected a line that begins with '+++'")
    patch = Patch(lines[at][4:].rstrip("\n"), lines[at + 1][4:].rstrip("\n"), [])
    at += 2
    while at < len(lines):
        hunk, at = _hunk(lines, at)
        patch.hunks.append(hunk)
    return patch


def _shown(hunk: Hunk) -> str:
    header = f"@@ -{_range(hunk.old_start, len(hunk.old))} +{_range(hunk.new_start, len(hunk.new))} @@\n"
    return header + "".join(_line(sign, line) for sign, line in hunk.lines)


def _range(start: int, count: int) -> str:
    if count == 0:
        return f"{start - 1},0"
    return str(start) if count == 1 else f"{start},{count}"


def _line(sign: str, line: str) -> str:
    return sign + line if line.endswith("\n") else f"{sign}{line}\n{NO_NEWLINE}"


def _hunk(lines: list[str], at: int) -> tuple[Hunk, int]:
    """The hunk that begins in line ``at`` (from 0), and where the next one begins."""
    match = _HEADER.fullmatch(lines[at].rstrip("\n"))
    if match is None:
        raise PatchError(at + 1, "expected a header such as '@@ -1,3 +1,4 @@'")
    old_start, old_count, new_start, new_count = (1 if part is None else int(part) for part in match.groups())
    hunk = Hunk(old_start + (old_count == 0), new_start + (new_count == 0))
    header, at = at + 1, at + 1
    while at < len(lines) and (lines[at][0] == "\\" or old_count or new_count):
        sign, rest = lines[at][0], lines[at][1:]
        if sign == "\\":
            _drop_newline(hunk, at)
        elif sign in " -+":
            old_count -= sign != "+"
            new_count -= sign != "-"
            hunk.lines.append((sign, rest))
        else:
            raise PatchError(at + 1, f"a line of a hunk begins with ' ', '-', '+' or '\\', not {sign!r}")
        if old_count < 0 or new_count < 0:
            raise PatchError(at + 1, f"the hunk of line {header} has more lines than its header says")
        at += 1
    if old_count or new_count:
        raise PatchError(header, "the hunk has fewer lines than its header says")
    return hunk, at


def _drop_newline(hunk: Hunk, at: int) -> None:
    if not hunk.lines or not hunk.lines[-1][1].endswith("\n"):
        raise PatchError(at + 1, "no line stands before it")
    sign, line = hunk.lines[-1]
    hunk.lines[-1] = (sign, line[:-1])
