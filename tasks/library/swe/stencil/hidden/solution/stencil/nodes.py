"""The tree of a template; each node writes itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from stencil.errors import TemplateError
from stencil.markup import UNDEFINED, escape

if TYPE_CHECKING:
    from stencil.environment import Environment


@dataclass
class Context:
    """What a template is rendered with. ``under_way`` are the templates that are being included."""

    environment: Environment
    scope: dict[str, Any]
    under_way: tuple[str, ...]
    out: list[str] = field(default_factory=list)


class Node:
    def write(self, context: Context) -> None:
        raise NotImplementedError


@dataclass
class Text(Node):
    value: str

    def write(self, context: Context) -> None:
        context.out.append(self.value)


@dataclass
class Print(Node):
    expression: Any

    def write(self, context: Context) -> None:
        context.out.append(escape(self.expression.evaluate(context.scope)))


@dataclass
class Block(Node):
    nodes: list[Node]

    def write(self, context: Context) -> None:
        for node in self.nodes:
            node.write(context)


@dataclass
class If(Node):
    branches: list[tuple[Any, bool, Block]]
    otherwise: Block | None

    def write(self, context: Context) -> None:
        for condition, negated, block in self.branches:
            if bool(condition.evaluate(context.scope)) is not negated:
                block.write(context)
                return
        if self.otherwise is not None:
            self.otherwise.write(context)


@dataclass
class For(Node):
    name: str
    items: Any
    body: Block
    otherwise: Block | None

    def write(self, context: Context) -> None:
        items = list(self.items.evaluate(context.scope))
        if not items and self.otherwise is not None:
            self.otherwise.write(context)
        outer = {name: context.scope.get(name, UNDEFINED) for name in (self.name, "loop")}
        for index, item in enumerate(items, 1):
            context.scope[self.name] = item
            context.scope["loop"] = {"index": index, "first": index == 1, "last": index == len(items)}
            self.body.write(context)
        context.scope.update(outer)


@dataclass
class Include(Node):
    name: str
    template: str
    line: int

    def write(self, context: Context) -> None:
        if self.name in context.under_way:
            raise TemplateError(f"{self.name!r} includes itself", self.template, self.line)
        block = context.environment.find(self.name, self.template, self.line)
        inner = Context(context.environment, context.scope, (*context.under_way, self.name), context.out)
        block.write(inner)
