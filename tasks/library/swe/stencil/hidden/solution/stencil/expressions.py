"""Expressions such as ``user.name | default("nobody") | upper``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stencil import filters
from stencil.errors import TemplateError
from stencil.markup import UNDEFINED

_PART = re.compile(
    r"""\s*(?:(?P<text>"[^"]*"|'[^']*')|(?P<number>-?\d+)|(?P<name>[A-Za-z_]\w*)|(?P<sign>[.|(),]))""", re.X
)


@dataclass(frozen=True)
class Literal:
    value: Any

    def evaluate(self, scope: Mapping[str, Any]) -> Any:
        return self.value


@dataclass(frozen=True)
class Name:
    parts: tuple[str, ...]

    def evaluate(self, scope: Mapping[str, Any]) -> Any:
        value = scope.get(self.parts[0], UNDEFINED)
        for part in self.parts[1:]:
            value = _part_of(value, part)
        return value


@dataclass(frozen=True)
class Filter:
    source: Any
    name: str
    arguments: tuple[Any, ...]

    def evaluate(self, scope: Mapping[str, Any]) -> Any:
        arguments = [argument.evaluate(scope) for argument in self.arguments]
        return filters.FILTERS[self.name](self.source.evaluate(scope), *arguments)


def parse(text: str, template: str, line: int) -> Any:
    """The expression in ``text``. Raises ``TemplateError``."""
    return _Parser(text, template, line).whole()


def _part_of(value: Any, part: str) -> Any:
    try:
        return value[part]
    except (TypeError, KeyError, IndexError, AttributeError):
        return getattr(value, part, UNDEFINED)


class _Parser:
    def __init__(self, text: str, template: str, line: int) -> None:
        self._where = (template, line)
        self._words = self._split(text)
        self._at = 0

    def whole(self) -> Any:
        found = self._piped()
        if self._at < len(self._words):
            raise self._error(f"unexpected {self._words[self._at][1]!r}")
        return found

    def _split(self, text: str) -> list[tuple[str, str]]:
        found, place = [], 0
        while text[place:].strip():
            match = _PART.match(text, place)
            if match is None:
                raise self._error(f"cannot read {text[place:].strip()!r}")
            found.append((str(match.lastgroup), match[str(match.lastgroup)]))
            place = match.end()
        return found

    def _piped(self) -> Any:
        found = self._simple()
        while self._take("|"):
            kind, name = self._next("a filter")
            if kind != "name" or name not in filters.FILTERS:
                raise self._error(f"unknown filter {name!r}")
            found = Filter(found, name, tuple(self._arguments()))
        return found

    def _arguments(self) -> list[Any]:
        found: list[Any] = []
        if self._take("("):
            while not self._take(")"):
                if found and not self._take(","):
                    raise self._error("expected ',' or ')'")
                found.append(self._simple())
        return found

    def _simple(self) -> Any:
        kind, value = self._next("an expression")
        if kind == "text":
            return Literal(value[1:-1])
        if kind == "number":
            return Literal(int(value))
        if kind != "name":
            raise self._error(f"unexpected {value!r}")
        parts = [value]
        while self._take("."):
            kind, value = self._next("a name")
            if kind != "name":
                raise self._error(f"expected a name after '.', not {value!r}")
            parts.append(value)
        return Name(tuple(parts))

    def _next(self, what: str) -> tuple[str, str]:
        if self._at >= len(self._words):
            raise self._error(f"{what} is missing")
        self._at += 1
        return self._words[self._at - 1]

    def _take(self, sign: str) -> bool:
        if self._at < len(self._words) and self._words[self._at] == ("sign", sign):
            self._at += 1
            return True
        return False

    def _error(self, message: str) -> TemplateError:
        return TemplateError(message, *self._where)
