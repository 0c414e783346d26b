"""What the text of a C or C++ kernel shows. A rough reading, without a parser: good for features, not for proofs."""

from __future__ import annotations

import re
from dataclasses import dataclass

_NOISE = re.compile(r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""", re.DOTALL)
_TOKEN = re.compile(r"\b(?:for|while|do)\b|[(){};]")
_INTRINSIC = re.compile(r"\b_mm(256|512)?_\w+|\bv(?:ld|st|add|sub|mul|mla|fma|dup|get|max|min)\w*_[fsu]\d+\b")
_VECTOR_TYPE = re.compile(r"\b__m(128|256|512)[id]?\b|\bvector_size\s*\(\s*(\d+)\s*\)")
_BRANCH = re.compile(r"\b(?:if|switch)\b|\?")
_LIBM = re.compile(r"\b(?:sqrt|cbrt|exp2?|log(?:2|10)?|pow|sin|cos|tan|atan2?|tanh|hypot)f?\s*\(")


@dataclass(frozen=True)
class SourceFacts:
    """Counts of things in the text. ``vector_bits`` is the widest vector written by hand; 0 if there is none."""

    lines: int
    loops: int
    loop_depth: int
    branches: int
    intrinsics: int
    vector_bits: int
    restrict: bool
    math_calls: int


def of_source(text: str) -> SourceFacts:
    """Read one file; comments and strings do not count."""
    code = _NOISE.sub(" ", text)
    loops, depth = _loops(code)
    widths = [int(found[1] or 128) for found in _INTRINSIC.finditer(code) if found[0].startswith("_mm")]
    widths += [int(found[1]) if found[1] else 8 * int(found[2]) for found in _VECTOR_TYPE.finditer(code)]
    return SourceFacts(
        lines=sum(bool(line.strip()) for line in code.splitlines()),
        loops=loops,
        loop_depth=depth,
        branches=len(_BRANCH.findall(code)),
        intrinsics=len(_INTRINSIC.findall(code)),
        vector_bits=max(widths, default=0),
        restrict=bool(re.search(r"\b(?:__)?restrict\b", code)),
        math_calls=len(_LIBM.findall(code)),
    )


def _loops(code: str) -> tuple[int, int]:
    """How many loops, and how deep the deepest stands in others. A loop ends with its block or its statement."""
    # "x": a loop whose body has not begun; "s": its body is a statement; "l": it is a block; "{": a block of no loop
    stack: list[str] = []
    count = deepest = parens = 0
    for token in _TOKEN.findall(code):
        if token == "(":
            parens += 1
        elif token == ")":
            parens -= 1
        elif parens:
            continue
        elif token == "{":
            stack.append("{") if not stack or stack[-1] != "x" else stack.__setitem__(-1, "l")
        elif token in "};":
            _end(stack, token)
        else:
            if stack and stack[-1] == "x":
                stack[-1] = "s"
            stack.append("x")
            count += 1
            deepest = max(deepest, sum(kind != "{" for kind in stack))
    return count, deepest


def _end(stack: list[str], token: str) -> None:
    if token == "}" and stack:
        stack.pop()
    # What has just ended was the whole body of the loops without a block around it.
    while stack and stack[-1] in "xs":
        stack.pop()
