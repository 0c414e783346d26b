"""From tokens to a tree of nodes."""

from __future__ import annotations

import re

from stencil import expressions
from stencil.errors import TemplateError
from stencil.lexer import Token, tokens
from stencil.nodes import Block, For, If, Include, Node, Print, Text

_FOR = re.compile(r"for\s+([A-Za-z_]\w*)\s+in\s+(.+)", re.S)
_INCLUDE = re.compile(r"""include\s+(?:"([^"]+)"|'([^']+)')""")


def parse(source: str, name: str) -> Block:
    """The tree of a template. Raises ``TemplateError``."""
    return _Parser(source, name).whole()


class _Parser:
    def __init__(self, source: str, name: str) -> None:
        self._name = name
        self._tokens = list(tokens(source, name))
        self._at = 0

    def whole(self) -> Block:
        block, stop = self._block()
        if stop is not None:
            raise self._error(f"unexpected '{stop.value}'", stop)
        return block

    def _block(self) -> tuple[Block, Token | None]:
        """Nodes up to an ``elif``, ``else`` or ``end``, which is returned too."""
        found: list[Node] = []
        while self._at < len(self._tokens):
            token = self._tokens[self._at]
            self._at += 1
            if token.kind == "text":
                found.append(Text(token.value))
            elif token.kind == "print":
                found.append(Print(expressions.parse(token.value, self._name, token.line)))
            elif token.value.split()[:1] in (["elif"], ["else"], ["end"]):
                return Block(found), token
            else:
                found.append(self._tag(token))
        return Block(found), None

    def _tag(self, token: Token) -> Node:
        word = token.value.split(None, 1)[0] if token.value else ""
        if word == "if":
            return self._if(token)
        if word == "for":
            return self._for(token)
        if word == "include" and (match := _INCLUDE.fullmatch(token.value)):
            return Include(match[1] or match[2], self._name, token.line)
        raise self._error(f"cannot read '{token.value}'", token)

    def _if(self, start: Token) -> If:
        branches, otherwise = [], None
        condition, negated = self._condition(start)
        while True:
            block, stop = self._block()
            if otherwise is None:
                branches.append((condition, negated, block))
            else:
                otherwise = block
            if stop is None:
                raise self._error("'if' is never ended", start)
            if stop.value == "end":
                return If(branches, otherwise)
            if otherwise is not None:
                raise self._error(f"'{stop.value}' after 'else'", stop)
            if stop.value == "else":
                otherwise = Block([])
            else:
                condition, negated = self._condition(stop)

    def _condition(self, token: Token):
        _, *rest = token.value.split(None, 1)
        text = "".join(rest)
        negated = text.startswith("not ")
        text = text.removeprefix("not ")
        return expressions.parse(text, self._name, token.line), negated

    def _for(self, start: Token) -> For:
        match = _FOR.fullmatch(start.value)
        if match is None:
            raise self._error(f"cannot read '{start.value}'", start)
        items = expressions.parse(match[2], self._name, start.line)
        body, stop = self._block()
        otherwise = None
        if stop is not None and stop.value == "else":
            otherwise, stop = self._block()
        if stop is None:
            raise self._error("'for' is never ended", start)
        if stop.value != "end":
            raise self._error(f"unexpected '{stop.value}'", stop)
        return For(match[1], items, body, otherwise)

    def _error(self, message: str, token: Token) -> TemplateError:
        return TemplateError(message, self._name, token.line)
