"""From the text of a template to tokens."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from stencil.errors import TemplateError

_OPEN = re.compile(r"\{([{%#])(-?)")
_CLOSE = {"{": re.compile(r"(-?)\}\}"), "%": re.compile(r"(-?)%\}"), "#": re.compile(r"(-?)#\}")}
_KINDS = {"{": "print", "%": "tag", "#": "comment"}


@dataclass(frozen=True)
class Token:
    """``kind`` is text, print or tag; ``line`` is where it begins."""

    kind: str
    value: str
    line: int


def tokens(source: str, name: str) -> Iterator[Token]:
    """The tokens of a template, without comments. Raises ``TemplateError``."""
    place, line, strip = 0, 1, False
    while True:
        match = _OPEN.search(source, place)
        text = source[place : match.start() if match else len(source)]
        shown = text.lstrip() if strip else text
        if match and match[2]:
            shown = shown.rstrip()
        if shown:
            yield Token("text", shown, line)
        line += text.count("\n")
        if match is None:
            return
        close = _CLOSE[match[1]].search(source, match.end())
        if close is None:
            raise TemplateError(f"'{match[0]}' is never closed", name, line)
        if match[1] != "#":
            yield Token(_KINDS[match[1]], source[match.end() : close.start()].strip(), line)
        line += source.count("\n", match.start(), close.end())
        strip = bool(close[1])
        place = close.end()
