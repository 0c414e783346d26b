"""Templates by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stencil.errors import TemplateError
from stencil.nodes import Block, Context
from stencil.parser import parse


class Environment:
    """``templates`` maps names to texts. Each is parsed once, when it is first needed."""

    def __init__(self, templates: Mapping[str, str]) -> None:
        self._templates = dict(templates)
        self._parsed: dict[str, Block] = {}

    def render(self, name: str, /, **values: Any) -> str:
        """The text of a template with these values. Raises ``TemplateError``, and ``KeyError`` for an unknown name."""
        block = self._load(name)
        context = Context(self, dict(values), (name,))
        block.write(context)
        return "".join(context.out)

    def find(self, name: str, template: str, line: int) -> Block:
        """The tree of a template that another one asks for."""
        if name not in self._templates:
            raise TemplateError(f"there is no template {name!r}", template, line)
        return self._load(name)

    def _load(self, name: str) -> Block:
        if name not in self._parsed:
            self._parsed[name] = parse(self._templates[name], name)
        return self._parsed[name]
