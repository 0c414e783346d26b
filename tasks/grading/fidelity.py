"""How faithful a repair is to the code that it repairs: what it changes, and complicates, beyond the reference.

``excess_edit``: the tokens that a submission changes, less those that the reference solution changes, over all tokens
of the files that the reference changes (what else is touched does not make it less); 0 for the reference itself or
anything as small. ``added_complexity``: cognitive complexity that the submission adds to Python files, less what the
reference adds; it can't be bought by rewriting elsewhere.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Mapping, Sequence

from forkgym.tasks.base import Submission, Task

Contents = Mapping[str, bytes | None]
_TOKEN = re.compile(r"\w+|[^\w\s]|\n[ \t]*")
# Beyond so many pairs of tokens the distance is bounded from above instead, by matching blocks.
_MOST_PAIRS = 4_000_000
_FLOW = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.IfExp, ast.Match)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def excess_edit(task: Task, submission: Submission) -> float:
    """Tokens changed beyond what the reference solution changes, over the size of the files it changes: >= 0."""
    spent, needed = _edit(task, _contents(submission)), _edit(task, task.oracle)
    size = sum(max(len(_tokens(task.files.get(path))), len(_tokens(data))) for path, data in task.oracle.items())
    return max(0, spent - needed) / max(1, size)


def added_complexity(task: Task, submission: Submission) -> int:
    """Cognitive complexity beyond what the reference solution adds, in points: >= 0. Other languages count nothing."""
    return max(0, _added(task, _contents(submission)) - _added(task, task.oracle))


def faithful(task: Task, submission: Submission) -> float:
    """Both as one number in (0, 1]: 1.0 is as small and as simple as the reference."""
    return 1.0 / (1.0 + excess_edit(task, submission) + 0.1 * added_complexity(task, submission))


def distance(old: Sequence[str], new: Sequence[str]) -> int:
    """Levenshtein distance of two lists of tokens; for very long ones an upper bound."""
    start = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    old, new = old[start:], new[start:]
    end = next(
        (i for i, (a, b) in enumerate(zip(old[::-1], new[::-1], strict=False)) if a != b), min(len(old), len(new))
    )
    old, new = old[: len(old) - end], new[: len(new) - end]
    if len(old) * len(new) > _MOST_PAIRS:
        parts = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
        return sum(max(a2 - a1, b2 - b1) for kind, a1, a2, b1, b2 in parts if kind != "equal")
    row = list(range(len(new) + 1))
    for count, token in enumerate(old, 1):
        before, row[0] = row[0], count
        for place, other in enumerate(new, 1):
            before, row[place] = row[place], min(row[place] + 1, row[place - 1] + 1, before + (token != other))
    return row[-1]


def complexity(source: str) -> int:
    """Cognitive complexity of a Python module: each break in the flow costs 1, and 1 more for each level that it is
    nested in; ``else``, ``elif`` and each run of one boolean operator cost 1. No Python counts 0.
    """
    try:
        return _cost(ast.parse(source), 0)
    except (SyntaxError, ValueError, RecursionError):
        return 0


def _cost(node: ast.AST, depth: int, elif_: bool = False) -> int:
    total, inner = 0, depth
    if isinstance(node, _FLOW):
        total += 1 + (0 if elif_ else depth)
        inner = depth if elif_ else depth + 1
    elif isinstance(node, _FUNCTIONS) and depth:
        inner = depth + 1
    elif isinstance(node, ast.BoolOp):
        total += 1
    chain = _elif(node)
    if isinstance(node, ast.If | ast.For | ast.AsyncFor | ast.While) and node.orelse and chain is None:
        total += 1
    for child in ast.iter_child_nodes(node):
        total += _cost(child, depth + 1 if child is chain else inner, child is chain)
    return total


def _elif(node: ast.AST) -> ast.If | None:
    if isinstance(node, ast.If) and len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If):
        return node.orelse[0]
    return None


def _edit(task: Task, contents: Contents) -> int:
    return sum(distance(_tokens(task.files.get(path)), _tokens(data)) for path, data in contents.items())


def _added(task: Task, contents: Contents) -> int:
    python = {path: data for path, data in contents.items() if path.endswith(".py")}
    return sum(complexity(_text(data)) - complexity(_text(task.files.get(path))) for path, data in python.items())


def _contents(submission: Submission) -> dict[str, bytes | None]:
    return {path: change.data for path, change in submission.changes.items() if change.link is None}


def _tokens(data: bytes | None) -> list[str]:
    return _TOKEN.findall(_text(data))


def _text(data: bytes | None) -> str:
    return (data or b"").decode("utf-8", "replace")
