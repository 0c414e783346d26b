"""Fidelity: distances and complexities counted by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from forkgym.tasks.base import Task
from forkgym.tasks.grading.fidelity import added_complexity, complexity, distance, excess_edit, faithful
from forkgym.tasks.submission import of_files

BROKEN = "def clip(value, low):\n    if value > low:\n        return low\n    return value\n"
GOLD = BROKEN.replace(">", "<")
LONG = """\
def clip(value, low):
    if value is None:
        return None
    elif value < low and low is not None:
        return low
    return value
"""


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [("", "", 0), ("abc", "abc", 0), ("abc", "", 3), ("kitten", "sitting", 3), ("flaw", "lawn", 2), ("xay", "xby", 1)],
)
def test_distance_is_levenshteins(old: str, new: str, expected: int) -> None:
    assert distance(list(old), list(new)) == distance(list(new), list(old)) == expected


def test_long_texts_get_an_upper_bound() -> None:
    old = [str(number) for number in range(3000)]
    new = ["first", *old[:1500], "middle", *old[1501:], "last"]
    assert distance(old, new) == 3


@pytest.mark.parametrize(
    ("source", "points"),
    [
        ("x = 1\n", 0),
        ("if a:\n    b()\n", 1),
        ("if a:\n    b()\nelse:\n    c()\n", 2),
        ("if a:\n    b()\nelif c:\n    d()\nelse:\n    e()\n", 3),
        ("for a in b:\n    if a and c or d:\n        e()\n", 1 + 2 + 2),
        ("while a:\n    try:\n        b()\n    except E:\n        c = d if e else f\n", 1 + 2 + 3),
        ("def f():\n    return [a for a in b]\n", 0),
        ("this is no Python", 0),
    ],
)
def test_complexity_counts_flow_by_its_depth(source: str, points: int) -> None:
    assert complexity(source) == points


def test_the_reference_is_faithful_and_a_rewrite_is_not(make: Callable[..., Task]) -> None:
    task = make(files={"clip.py": BROKEN.encode()}, oracle={"clip.py": GOLD.encode()})
    gold, other = of_files(task.oracle), of_files({"clip.py": LONG.encode()})
    assert (excess_edit(task, gold), added_complexity(task, gold), faithful(task, gold)) == (0, 0, 1.0)
    # One `if` before; `if`, `elif` and `and` after.
    assert added_complexity(task, other) == 2
    assert 0 < excess_edit(task, other) < 1
    assert faithful(task, other) == pytest.approx(1 / (1 + excess_edit(task, other) + 0.2))
    # tokens of `\n    x = 1`: a line break, a name, a sign and a number, beyond the one that had to change
    more = of_files({"clip.py": (GOLD + "    x = 1\n").encode()})
    assert excess_edit(task, more) == pytest.approx(4 / len(task_tokens(BROKEN)))


def test_touching_a_long_file_does_not_hide_an_excess(make: Callable[..., Task]) -> None:
    notes = b"word " * 5000
    task = make(files={"clip.py": BROKEN.encode(), "NEWS": notes}, oracle={"clip.py": GOLD.encode()})
    excess = {"clip.py": (GOLD + "    x = 1\n").encode()}
    alone, diluted = of_files(excess), of_files({**excess, "NEWS": notes + b"end"})
    assert excess_edit(task, diluted) > excess_edit(task, alone) > 0


def task_tokens(source: str) -> list[str]:
    lines = source.split("\n")
    words = [
        word
        for line in lines
        for word in line.replace("(", " ( ").replace(")", " ) ").replace(",", " , ").replace(":", " : ").split()
    ]
    return words + ["\n"] * (len(lines) - 1)
