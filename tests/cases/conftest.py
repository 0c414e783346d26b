"""A desk at which an agent's script works on a task, and from which its work is captured and graded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from forkgym.sandboxes import backend
from forkgym.sandboxes.base import Sandbox
from forkgym.tasks.base import Grading, Submission, Task, Verdict
from forkgym.tasks.grading import grade
from forkgym.tasks.submission import apply, capture, from_json, to_json
from forkgym.tasks.workspace import Bases

TEST_F = b"""\
import unittest
import f


class T(unittest.TestCase):
    def test_f(self):
        self.assertEqual(f.f(), 2)
"""


class Desk:
    """Everything that a case about submissions needs; ``f()`` must return 2 and returns 1 at the start."""

    def __init__(self, bases: Bases) -> None:
        self.bases = bases

    def task(self, **changes: Any) -> Task:
        values: dict[str, Any] = {
            "id": "case",
            "family": "swe",
            "instruction": "f() returns 1, it should return 2.",
            "split": "train",
            "files": {"f.py": b"def f():\n    return 1\n"},
            "hidden": {"tests/test_f.py": TEST_F},
            "oracle": {"f.py": b"def f():\n    return 2\n"},
            "grading": Grading("unittest", ("tests.test_f.T.test_f",), 30.0, {"call_timeout": 0.5}),
        }
        return Task(**(values | changes))

    def work(self, task: Task, script: str) -> Submission:
        """What the script changed, through JSON and back, as it travels to a grader elsewhere."""
        with self.bases.box(task) as box:
            result = box.exec(["/bin/bash", "-c", script])
            assert result.ok, result
            return self.captured(box, task)

    def captured(self, box: Sandbox, task: Task) -> Submission:
        with box.fork(1)[0] as quiet:
            return from_json(to_json(capture(quiet, task, self.bases.tree(task))))

    def applied(self, task: Task, submission: Submission, path: str) -> bytes:
        """The bytes of a file once the submission stands in a clean sandbox."""
        with self.bases.box(task) as box:
            apply(box, submission, task.workdir)
            return box.read_file(f"{task.workdir}/{path}")

    def grade(self, task: Task, submission: Submission) -> Verdict:
        return grade(task, submission, self.bases.box)


@pytest.fixture(scope="session")
def sandbox_pytest(desk: Desk) -> None:
    """The image's own interpreter has pytest, or the test is skipped."""
    with desk.bases.box(desk.task()) as box:
        if not box.exec(["python3", "-m", "pytest", "--version"]).ok:
            pytest.skip("the image 'host' has no pytest; .ci/run installs it (python3-pytest)")


@pytest.fixture(scope="session")
def desk() -> Iterator[Desk]:
    """A desk with sandboxes of the local backend."""
    bases = Bases(backend("local"))
    yield Desk(bases)
    bases.close()
