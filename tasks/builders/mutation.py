"""One-line mistakes in a Python module, kept only if a check tells them from the original.

    python -m forkgym.tasks.builders.mutation swe/tiny/clamp     # mistakes in its solution that its hidden tests catch

A mutation is an ``edit`` of a task's variant: ``find`` occurs exactly once in the source.
"""

from __future__ import annotations

import builtins
import io
import json
import keyword
import random
import re
import sys
import tokenize
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate

from forkgym.sandboxes import backend
from forkgym.tasks.base import Task
from forkgym.tasks.builders.syntax import Change
from forkgym.tasks.errors import GradingError
from forkgym.tasks.grading import judge
from forkgym.tasks.loader import load
from forkgym.tasks.submission import of_files
from forkgym.tasks.workspace import Bases

_OPERATORS: dict[str, tuple[str, ...]] = {
    "<": ("<=", ">"),
    "<=": ("<", ">="),
    ">": (">=", "<"),
    ">=": (">", "<="),
    "==": ("!=",),
    "!=": ("==",),
    "+": ("-",),
    "-": ("+",),
    "*": ("+", "/"),
    "/": ("*", "//"),
    "//": ("/", "%"),
    "%": ("//",),
    "+=": ("-=", "="),
    "-=": ("+=", "="),
}
_WORDS: dict[str, tuple[str, ...]] = {
    "and": ("or",),
    "or": ("and",),
    "True": ("False",),
    "False": ("True",),
    "min": ("max",),
    "max": ("min",),
    "sorted": ("list",),
    "lower": ("upper",),
    "upper": ("lower",),
    "any": ("all",),
    "all": ("any",),
}
_WRAPPERS = ("abs", "sorted", "set", "round", "len", "str", "int", "float")
_METHODS = ("strip", "lower", "upper", "rstrip", "lstrip", "title", "split")


@dataclass(frozen=True)
class Mutation:
    """A mistake on one line (counted from 1): ``find`` became ``replace``; ``kind`` names the sort of mistake."""

    kind: str
    line: int
    find: str
    replace: str

    def apply(self, source: str) -> str:
        """The module with the mistake. Raises ``ValueError`` if ``find`` does not occur exactly once."""
        if source.count(self.find) != 1:
            raise ValueError(f"{self.find!r} occurs {source.count(self.find)} times; must be once")
        return source.replace(self.find, self.replace)


def propose(source: str) -> list[Mutation]:
    """All mutations of this module that still are Python, in order of their place, each giving another text.

    Raises ``SyntaxError`` if the source is no Python.
    """
    compile(source, "<module>", "exec")
    lines = source.splitlines(keepends=True)
    found: dict[str, Mutation] = {}
    for kind, line, start, end, new in _changes(source, lines):
        mutation = _shortest(source, lines, kind, (line, start, end), new)
        if mutation is None:
            continue
        broken = mutation.apply(source)
        if broken != source and broken not in found and _parses(broken):
            found[broken] = mutation
    return list(found.values())


def token_changes(source: str) -> list[Change]:
    """The same mistakes as stretches of the text; whether each still is Python, ``syntax.differs`` says."""
    lines = source.splitlines(keepends=True)
    starts = list(accumulate(map(len, lines), initial=0))
    found = _changes(source, lines)
    return [
        Change(kind, row, starts[row - 1] + start, starts[row - 1] + end, new) for kind, row, start, end, new in found
    ]


def verified(source: str, fails: Callable[[str], bool], seed: int | None = None) -> Iterator[Mutation]:
    """The proposed mutations for which ``fails(broken source)`` is true; in a random order if there is a seed.

    Raises ``ValueError`` if the original itself fails.
    """
    if fails(source):
        raise ValueError("the module fails its own check before any mutation")
    proposals = propose(source)
    if seed is not None:
        random.Random(seed).shuffle(proposals)
    return (mutation for mutation in proposals if fails(mutation.apply(source)))


def caught(task: Task, path: str, bases: Bases) -> Callable[[str], bool]:
    """A check for ``verified``: does a hidden test of this task fail with this text in the solution's ``path``?

    The check raises ``GradingError`` if grading itself failed.
    """

    def fails(text: str) -> bool:
        verdict = judge(task, of_files({**task.oracle, path: text.encode()}), bases.box)
        if verdict.score is None:
            raise GradingError(f"{task.id}: {verdict.error}")
        return not verdict.resolved

    return fails


def main(spec: str) -> None:
    """Print the verified mutations of each Python file in the solution of the first task that ``spec`` names."""
    task = load(spec)[0]
    bases = Bases(backend("local"))
    for path, data in task.oracle.items():
        if data is not None and path.endswith(".py"):
            for mutation in verified(data.decode(), caught(task, path, bases)):
                edit = {"file": path, "find": mutation.find, "replace": mutation.replace}
                sys.stdout.write(f"{json.dumps(edit)}  # line {mutation.line}, {mutation.kind}\n")


def _changes(source: str, lines: list[str]) -> Iterator[tuple[str, int, int, int, str]]:
    """(kind, line, first column, column after the last, new text), by token and by pattern."""
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    defined = set(re.findall(r"\bdef (\w+)", source))
    words = {token.string for token in tokens if token.type == tokenize.NAME} - defined
    names = sorted(word for word in words if _is_variable(word))
    for token in tokens:
        (line, start), (_, end) = token.start, token.end
        if token.type == tokenize.OP:
            for new in _OPERATORS.get(token.string, ()):
                yield "operator", line, start, end, new
        elif token.type == tokenize.NUMBER and token.string.isdigit():
            for new in (int(token.string) + 1, int(token.string) - 1):
                yield "constant", line, start, end, str(new)
        elif token.type == tokenize.NAME:
            for new in _WORDS.get(token.string, ()):
                yield "word", line, start, end, new
            if token.string in names and token.line.lstrip().startswith(("return", "if", "elif", "while")):
                for new in names:
                    yield "variable", line, start, end, new
    for number, text in enumerate(lines, 1):
        for match in re.finditer(r"\((\w+), (\w+)\)", text):
            yield "order of arguments", number, match.start(), match.end(), f"({match[2]}, {match[1]})"
        for match in re.finditer(rf"\b(?:{'|'.join(_WRAPPERS)})(\([^()]*\))", text):
            yield "missing call", number, match.start(), match.end(), match[1]
        for match in re.finditer(rf"\.(?:{'|'.join(_METHODS)})\(\)", text):
            yield "missing method", number, match.start(), match.end(), ""


def _is_variable(name: str) -> bool:
    return name.islower() and not keyword.iskeyword(name) and not hasattr(builtins, name) and name not in _METHODS


def _shortest(source: str, lines: list[str], kind: str, place: tuple[int, int, int], new: str) -> Mutation | None:
    """The mutation whose ``find`` is grown within its line, by whole words, until it occurs once in the source."""
    line, start, end = place
    text = lines[line - 1].rstrip("\n")
    indent = len(text) - len(text.lstrip())
    left, right = start, end
    while source.count(text[left:right]) != 1:
        if left <= indent and right >= len(text):
            return None
        right = _next_edge(text, right)
        if source.count(text[left:right]) != 1:
            left = max(indent, _previous_edge(text, left))
    return Mutation(kind, line, text[left:right], text[left:start] + new + text[end:right])


def _next_edge(text: str, at: int) -> int:
    match = re.compile(r"\s*(\w+|\S)").match(text, at)
    return match.end() if match else len(text)


def _previous_edge(text: str, at: int) -> int:
    match = re.search(r"(\w+|\S)\s*$", text[:at])
    return match.start() if match else 0


def _parses(source: str) -> bool:
    try:
        compile(source, "<mutation>", "exec")
    except SyntaxError:
        return False
    return True


if __name__ == "__main__":
    main(sys.argv[1])
