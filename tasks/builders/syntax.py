"""Mistakes in a Python module by its syntax tree: each replaces one stretch of the text and leaves the rest as it was.

``mutation.py`` has those of single tokens; these need to know what a stretch of text is.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_EXCEPTIONS = {
    "ValueError": "TypeError",
    "TypeError": "ValueError",
    "KeyError": "IndexError",
    "IndexError": "KeyError",
    "AttributeError": "NameError",
    "OSError": "RuntimeError",
    "FileNotFoundError": "PermissionError",
    "RuntimeError": "ValueError",
    "NotImplementedError": "RuntimeError",
    "StopIteration": "StopAsyncIteration",
    "ZeroDivisionError": "OverflowError",
    "UnicodeDecodeError": "UnicodeEncodeError",
}
_COMPARES: dict[type[ast.cmpop], str] = {ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in"}
_COPIES = ("list", "dict", "set", "tuple", "deepcopy")


@dataclass(frozen=True)
class Change:
    """A mistake of one ``kind``: the text from offset ``start`` to ``end`` became ``new``. ``line`` counts from 1."""

    kind: str
    line: int
    start: int
    end: int
    new: str

    def apply(self, source: str) -> str:
        """The module with the mistake."""
        return source[: self.start] + self.new + source[self.end :]


def propose(source: str) -> list[Change]:
    """All mistakes by their place; whether each still is Python, ``differs`` says. Raises ``SyntaxError``."""
    text = _Text(source)
    found: dict[tuple[int, int, str], Change] = {}
    for node in _reached(ast.parse(source)):
        for rule in RULES:
            for kind, part, new in rule(node, text):
                start, end = text.span(part)
                found.setdefault((start, end, new), Change(kind, part.lineno, start, end, new))
    return [found[place] for place in sorted(found)]


def differs(source: str, broken: str) -> bool:
    """True if ``broken`` is Python and means something else than ``source``."""
    try:
        tree = ast.parse(broken)
        compile(tree, "<mistake>", "exec")
    except (SyntaxError, ValueError):
        return False
    return ast.dump(tree) != ast.dump(ast.parse(source))


Located = ast.expr | ast.stmt | ast.ExceptHandler | ast.arg | ast.keyword
Rule = Callable[[ast.AST, "_Text"], Iterator[tuple[str, Located, str]]]


class _Text:
    """The source, and where nodes stand in it: their columns count bytes."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._lines = source.splitlines(keepends=True)
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))

    def span(self, node: Located) -> tuple[int, int]:
        """First offset, and the one after the last."""
        last, column = node.end_lineno or node.lineno, node.end_col_offset or node.col_offset
        return self._offset(node.lineno, node.col_offset), self._offset(last, column)

    def of(self, node: Located) -> str:
        """The text of a node."""
        start, end = self.span(node)
        return self.source[start:end]

    def _offset(self, line: int, column: int) -> int:
        return self._starts[line - 1] + len(self._lines[line - 1].encode()[:column].decode())


def _reached(tree: ast.Module) -> Iterator[ast.AST]:
    """All nodes that run when the module is used: no annotations, and nothing under ``TYPE_CHECKING``."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "type_comment"):
                continue
            children = [item for item in (value if isinstance(value, list) else [value]) if isinstance(item, ast.AST)]  # pyright: ignore
            waiting += [child for child in children if not (isinstance(child, ast.If) and _only_checked(child))]


def _only_checked(node: ast.If) -> bool:
    shown = ast.unparse(node.test)
    return "TYPE_CHECKING" in shown or "__name__" in shown


def _conditions(node: ast.AST, text: _Text) -> Iterator[tuple[str, Located, str]]:
    if isinstance(node, ast.If | ast.While | ast.IfExp | ast.Assert):
        test = node.test
        plain = test.operand if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) else None
        yield "negated condition", test, text.of(plain) if plain else f"not ({text.of(test)})"
    if isinstance(node, ast.comprehension):
        for test in node.ifs:
            yield "dropped filter", test, "True"


def _parts(node: ast.AST, text: _Text) -> Iterator[tuple[str, Located, str]]:
    if isinstance(node, ast.BoolOp):
        word = " and " if isinstance(node.op, ast.And) else " or "
        for dropped in node.values:
            yield "dropped condition", node, word.join(text.of(part) for part in node.values if part is not dropped)
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARES:
        right = node.comparators[0]
        yield "turned test", node, f"{text.of(node.left)} {_COMPARES[type(node.ops[0])]} {text.of(right)}"


def _bounds(node: ast.AST, text: _Text) -> Iterator[tuple[str, Located, str]]:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range":
        last = node.args[min(1, len(node.args) - 1)] if node.args else None
        if last is not None:
            yield from (("off by one", last, f"{text.of(last)} {step} 1") for step in "+-")
    if isinstance(node, ast.Subscript):
        index = node.slice
        ends = [index.lower, index.upper] if isinstance(index, ast.Slice) else [index]
        for end in ends:
            if isinstance(end, ast.Constant | ast.UnaryOp) and not isinstance(getattr(end, "value", 0), int):
                continue
            if end is not None and not isinstance(end, ast.Tuple | ast.Slice):
                yield from (("off by one", end, f"{text.of(end)} {step} 1") for step in "+-")


def _returns(node: ast.AST, text: _Text) -> Iterator[tuple[str, Located, str]]:
    if isinstance(node, ast.Return) and node.value is not None:
        yield "dropped return", node, text.of(node.value)
    if isinstance(node, ast.Await):
        yield "dropped await", node, text.of(node.value)
    if isinstance(node, ast.IfExp):
        branches = text.of(node.orelse), text.of(node.test), text.of(node.body)
        yield "swapped branches", node, "{} if {} else {}".format(*branches)


def _exceptions(node: ast.AST, text: _Text) -> Iterator[tuple[str, Located, str]]:
    if isinstance(node, ast.Raise):
        raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        if isinstance(raised, ast.Name) and raised.id in _EXCEPTIONS:
            yield "wrong exception", raised, _EXCEPTIONS[raised.id]
        yield "swallowed error", node, "pass"
    if isinstance(node, ast.ExceptHandler) and isinstance(node.type, ast.Name) and node.type.id in _EXCEPTIONS:
        yield "wrong exception caught", node.type, _EXCEPTIONS[node.type.id]


def _calls(node: ast.AST, text: _Text) -> Iterator[tuple[str, Located, str]]:
    if not isinstance(node, ast.Call):
        return
    name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
    starred = any(isinstance(argument, ast.Starred) for argument in node.args)
    shown = [text.of(argument) for argument in (*node.args, *node.keywords)]
    for place in range(0 if starred else len(node.args) - 1):
        turned = [*shown[:place], shown[place + 1], shown[place], *shown[place + 2 :]]
        yield "swapped arguments", node, f"{text.of(node.func)}({', '.join(turned)})"
    for place, argument in enumerate(node.keywords, len(node.args)):
        if argument.arg is not None:
            fewer = [*shown[:place], *shown[place + 1 :]]
            yield "dropped argument", node, f"{text.of(node.func)}({', '.join(fewer)})"
    if isinstance(node.func, ast.Attribute) and name == "copy" and not shown:
        yield "dropped copy", node, text.of(node.func.value)
    elif name in _COPIES and len(node.args) == 1 and not node.keywords:
        yield "dropped copy", node, text.of(node.args[0])


def _statements(node: ast.AST, text: _Text) -> Iterator[tuple[str, Located, str]]:
    if isinstance(node, ast.Break | ast.Continue):
        yield "dropped break" if isinstance(node, ast.Break) else "dropped continue", node, "pass"
    if isinstance(node, ast.AugAssign) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        yield "dropped statement", node, "pass"
    if isinstance(node, ast.With) and len(node.items) == 1:
        item = node.items[0]
        if item.optional_vars is not None:  # entered by hand, and never left
            opened = f"{text.of(item.optional_vars)} = ({text.of(item.context_expr)}).__enter__()"
            start, _ = text.span(node)
            body = text.source[text.span(item.optional_vars)[1] : text.span(node)[1]]
            margin = text.source[text.source.rfind("\n", 0, start) + 1 : start]
            yield "leaked resource", node, f"{opened}\n{margin}if True{body}"


def _defaults(node: ast.AST, text: _Text) -> Iterator[tuple[str, Located, str]]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        for value in (*node.args.defaults, *(item for item in node.args.kw_defaults if item is not None)):
            if isinstance(value, ast.Constant):
                if isinstance(value.value, bool):
                    yield "wrong default", value, str(not value.value)
                elif isinstance(value.value, int):
                    yield "wrong default", value, str(value.value + 1)
                elif value.value == "" or value.value == " ":
                    yield "wrong default", value, repr(" " if value.value == "" else "")


RULES: tuple[Rule, ...] = (
    _conditions,
    _parts,
    _bounds,
    _returns,
    _exceptions,
    _calls,
    _statements,
    _defaults,
)
KINDS = (
    *("negated condition", "dropped filter", "dropped condition", "turned test", "off by one", "dropped return"),
    *("dropped await", "swapped branches", "wrong exception", "swallowed error", "wrong exception caught"),
    *("swapped arguments", "dropped argument", "dropped copy", "dropped break", "dropped continue"),
    *("dropped statement", "leaked resource", "wrong default"),
)
