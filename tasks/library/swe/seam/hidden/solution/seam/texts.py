"""Lines, patches, and what can be wrong with them."""

from __future__ import annotations

from dataclasses import dataclass, field


class PatchError(ValueError):
    """A patch cannot be read; ``line`` counts from 1."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(f"line {line}: {message}")
        self.line = line


class Conflict(ValueError):
    """A hunk has no place in the text; ``hunk`` counts from 1."""

    def __init__(self, hunk: int) -> None:
        super().__init__(f"hunk {hunk} does not fit")
        self.hunk = hunk


@dataclass
class Hunk:
    """``lines`` are (sign, line) with their line feeds; the sign is a space, ``-`` or ``+``. Starts count from 1."""

    old_start: int
    new_start: int
    lines: list[tuple[str, str]] = field(default_factory=list)

    @property
    def old(self) -> list[str]:
        return [line for sign, line in self.lines if sign != "+"]

    @property
    def new(self) -> list[str]:
        return [line for sign, line in self.lines if sign != "-"]


@dataclass
class Patch:
    old_name: str
    new_name: str
    hunks: list[Hunk]


def split(text: str) -> list[str]:
    """The lines of a text, with their line feeds. Nothing else ends a line."""
    lines = text.split("\n")
    last = lines.pop()
    return [line + "\n" for line in lines] + ([last] if last else [])
