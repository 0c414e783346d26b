"""A small task with two bugs, so that a score can lie between 0 and 1, and environments over it in real sandboxes."""

from types import SimpleNamespace
from typing import Any

import pytest

from forkgym.envs.core import CodingEnv
from forkgym.tasks.base import Budget, Grading, Task

BROKEN = b"def add(a, b):\n    return a - b\n\n\ndef double(a):\n    return a + 2\n\n\ndef negate(a):\n    return -a\n"
FIXED = BROKEN.replace(b"a - b", b"a + b").replace(b"a + 2", b"a * 2")
TESTS = b"""import unittest
import calc


class TestCalc(unittest.TestCase):
    def test_add(self):
        self.assertEqual(calc.add(2, 3), 5)

    def test_double(self):
        self.assertEqual(calc.double(5), 10)

    def test_negate(self):
        self.assertEqual(calc.negate(5), -5)

    def test_negate_zero(self):
        self.assertEqual(calc.negate(0), 0)
"""
NAMES = ("test_add", "test_double", "test_negate", "test_negate_zero")


def calc_task(name="calc", **changes):
    """Two of its four hidden tests fail at the start; ``fix_add`` and ``fix_double`` mend one each."""
    fields: dict[str, Any] = {
        "id": f"test/{name}",
        "family": "swe",
        "instruction": f"This is {name}. add(2, 3) returns -1 and double(5) returns 7. Fix calc.py.",
        "split": "train",
        "files": {"calc.py": BROKEN, "README.md": b"Arithmetic.\n"},
        "hidden": {"test_calc.py": TESTS},
        "oracle": {"calc.py": FIXED},
        "grading": Grading("unittest", tuple(f"test_calc.TestCalc.{test}" for test in NAMES), 20.0),
        "budget": Budget(8, 120.0, None),
    }
    return Task(**{**fields, **changes})


def bash(command, **more):
    return {"tool": "bash", "arguments": {"command": command, **more}}


@pytest.fixture
def calc():
    """The task and its actions: ``task``, ``bash``, ``submit``, ``fix_add``, ``fix_double``, ``files``."""
    return SimpleNamespace(
        task=calc_task,
        bash=bash,
        submit={"tool": "submit", "arguments": {}},
        fix_add=bash("sed -i 's/a - b/a + b/' calc.py"),
        fix_double=bash("sed -i 's/a + 2/a * 2/' calc.py"),
        broken=BROKEN,
        fixed=FIXED,
    )


@pytest.fixture
def make():
    """Environments over ``calc_task()`` or the tasks given, closed at the end of the test."""
    made = []

    def new(*tasks, **options):
        made.append(CodingEnv(list(tasks) or [calc_task()], **options))
        return made[-1]

    yield new
    for env in made:
        env.close()
