"""A small task and clean sandboxes of the local backend, shared by the tests of this room."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from forkgym.sandboxes import backend
from forkgym.sandboxes.base import SandboxSpec
from forkgym.tasks.base import Grading, Submission, Task, Verdict
from forkgym.tasks.grading import grade
from forkgym.tasks.submission import of_files
from forkgym.tasks.workspace import Bases

BROKEN = b"def half(n):\n    return n * 2\n"
FIXED = b"def half(n):\n    return n / 2\n"
HIDDEN = b"""\
import unittest

from half import half

SECRET = "only-the-hidden-tests-say-this"


class TestHalf(unittest.TestCase):
    def test_even(self):
        self.assertEqual(half(8), 4)

    def test_odd(self):
        self.assertEqual(half(7), 3.5)

    def test_big(self):
        self.assertEqual(half(2468), 1234)
"""
TESTS = ("test_half.TestHalf.test_even", "test_half.TestHalf.test_odd", "test_half.TestHalf.test_big")


def make_task(**changes: Any) -> Task:
    """The task ``half``: multiply became divide. Each test passes with ``FIXED`` and fails with ``BROKEN``."""
    values: dict[str, Any] = {
        "id": "half",
        "family": "swe",
        "instruction": "half(8) returns 16, it should return 4. Fix half.py.",
        "split": "train",
        "files": {"half.py": BROKEN, "README.md": b"half(n) returns the half of n.\n"},
        "hidden": {"test_half.py": HIDDEN},
        "oracle": {"half.py": FIXED},
        "grading": Grading("unittest", TESTS, 20.0, {"call_timeout": 0.5}),
    }
    return Task(**(values | changes))


@pytest.fixture(scope="session")
def bases() -> Iterator[Bases]:
    """Clean sandboxes; their snapshots are gone afterwards."""
    found = Bases(backend("local"))
    yield found
    found.close()


@pytest.fixture(scope="session")
def has_program(bases: Bases) -> Callable[..., str]:
    """``has_program(*command)``: the first line that a program of the image prints; the test is skipped without it."""

    def ask(*command: str) -> str:
        with bases.backend.create(SandboxSpec()) as box:
            result = box.exec(command, cwd="/")
        if not result.ok:
            pytest.skip(f"the image 'host' has no {' '.join(command[:3])}; .ci/run installs what this test needs")
        return result.stdout.decode().partition("\n")[0]

    return ask


@pytest.fixture(scope="session")
def sandbox_pytest(has_program: Callable[..., str]) -> str:
    """The version of the pytest that the image's own interpreter has."""
    return has_program("python3", "-m", "pytest", "--version")


@pytest.fixture
def task() -> Task:
    """The task ``half``."""
    return make_task()


@pytest.fixture
def make() -> Callable[..., Task]:
    """``make(**fields)``: the task ``half`` with other fields."""
    return make_task


@pytest.fixture
def judged(bases: Bases) -> Callable[..., Verdict]:
    """``judged(task, half=text, files={...})``: the verdict for these contents."""

    def run(task: Task, half: str | None = None, files: dict[str, bytes | None] | None = None) -> Verdict:
        contents = dict(files or {})
        if half is not None:
            contents["half.py"] = half.encode()
        submission: Submission = of_files(contents)
        return grade(task, submission, bases.box)

    return run
