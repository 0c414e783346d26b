"""Mistakes by syntax: what each kind makes of a line, worked out by hand."""

from __future__ import annotations

import ast

import pytest

from forkgym.tasks.builders import mutation, syntax

CASES = [
    ("if a:\n    b()\n", "negated condition", {"if not (a):"}),
    ("while not a:\n    b()\n", "negated condition", {"while a:"}),
    ("x = [a for a in b if a > 1 if c]\n", "dropped filter",
     {"x = [a for a in b if True if c]", "x = [a for a in b if a > 1 if True]"}),
    ("x = a and b or c\n", "dropped condition", {"x = c", "x = a and b", "x = b or c", "x = a or c"}),
    ("x = a is None\n", "turned test", {"x = a is not None"}),
    ("x = a not in b\n", "turned test", {"x = a in b"}),
    ("for a in range(1, n):\n    b()\n", "off by one", {"for a in range(1, n + 1):", "for a in range(1, n - 1):"}),
    ("x = a[1:]\n", "off by one", {"x = a[1 + 1:]", "x = a[1 - 1:]"}),
    ("def f(a):\n    return a.b\n", "dropped return", {"a.b"}),
    ("async def f(a):\n    x = await a()\n", "dropped await", {"x = a()"}),
    ("x = a if b else c\n", "swapped branches", {"x = c if b else a"}),
    ("raise ValueError('a')\n", "wrong exception", {"raise TypeError('a')"}),
    ("if a:\n    raise b\n", "swallowed error", {"pass"}),
    ("try:\n    a()\nexcept KeyError:\n    b()\n", "wrong exception caught", {"except IndexError:"}),
    ("x = f(a, b=1, c=2)\n", "dropped argument", {"x = f(a, c=2)", "x = f(a, b=1)"}),
    ("x = f(a, b, c)\n", "swapped arguments", {"x = f(b, a, c)", "x = f(a, c, b)"}),
    ("x = list(a) + b.copy()\n", "dropped copy", {"x = a + b.copy()", "x = list(a) + b"}),
    ("for a in b:\n    break\n", "dropped break", {"pass"}),
    ("for a in b:\n    continue\n", "dropped continue", {"pass"}),
    ("x += 1\n", "dropped statement", {"pass"}),
    ("with open(a) as f:\n    b(f)\n", "leaked resource", {"f = (open(a)).__enter__()"}),
    ("def f(a, b=False, *, c=3):\n    pass\n", "wrong default",
     {"def f(a, b=True, *, c=3):", "def f(a, b=False, *, c=4):"}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("source", "kind", "lines"), CASES, ids=[f"{kind}-{n}" for n, (_, kind, _) in enumerate(CASES)]
)
def test_each_kind(source: str, kind: str, lines: set[str]) -> None:
    changes = [change for change in syntax.propose(source) if change.kind == kind]
    broken = {change.apply(source).splitlines()[change.line - 1].strip() for change in changes}
    assert broken == lines
    assert all(syntax.differs(source, change.apply(source)) for change in changes)


def test_there_is_a_case_for_each_kind() -> None:
    assert {kind for _, kind, _ in CASES} == set(syntax.KINDS)
    assert len(syntax.KINDS) >= 12


def test_a_leaked_resource_keeps_the_body() -> None:
    source = "def f(a):\n    with open(a) as g:\n        x = g.read()\n        return x\n"
    (change,) = (change for change in syntax.propose(source) if change.kind == "leaked resource")
    assert change.apply(source) == (
        "def f(a):\n    g = (open(a)).__enter__()\n    if True:\n        x = g.read()\n        return x\n"
    )


def test_columns_are_those_of_characters() -> None:
    source = "x = 'äöü€', f(a, b)\n"
    assert "x = 'äöü€', f(b, a)\n" in {change.apply(source) for change in syntax.propose(source)}


def test_what_never_runs_is_left_alone() -> None:
    source = (
        "def f(a: list[int] = g(1, 2)) -> dict[1:2]:\n    pass\nif TYPE_CHECKING:\n    from a import b\n    c += 1\n"
    )
    assert {change.new for change in syntax.propose(source)} == {"g(2, 1)"}


def test_equal_meaning_and_no_python_are_no_difference() -> None:
    assert not syntax.differs("x = 1\n", "x = (1)  # one\n")
    assert not syntax.differs("x = 1\n", "x = = 1\n")
    assert not syntax.differs("def f():\n    pass\n", "return 1\n")
    assert syntax.differs("x = 1\n", "x = 2\n")


def test_single_tokens_give_the_same_texts_as_edits() -> None:
    source = "def clip(value, low):\n    if value < low:\n        return abs(low)\n    return value.strip() + low\n"
    edits = {edit.apply(source) for edit in mutation.propose(source)}
    stretches = {change.apply(source) for change in mutation.token_changes(source)}
    assert edits <= stretches
    for broken in stretches - edits - {source}:
        with pytest.raises(SyntaxError):
            ast.parse(broken)
