"""Verdicts: honest work scores 1, half of it scores 0, and what breaks on our side is never a score."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from forkgym.errors import ConfigError
from forkgym.sandboxes.base import Sandbox
from forkgym.sandboxes.errors import SandboxDeadError
from forkgym.tasks.base import Grading, Submission, Task, Verdict
from forkgym.tasks.errors import TaskFormatError
from forkgym.tasks.grading import grade, judge
from forkgym.tasks.submission import from_json, of_files
from forkgym.tasks.workspace import Bases

Judged = Callable[..., Verdict]
Make = Callable[..., Task]
RIGHT = "def half(n):\n    return n / 2\n"


def no_box(task: Task) -> Sandbox:
    raise AssertionError("no sandbox may be started")


def dead_box(task: Task) -> Sandbox:
    raise SandboxDeadError("the machine is gone")


def messages(verdict: Verdict) -> dict[str, str]:
    return {finding.id.rpartition(".")[2]: finding.message for finding in verdict.findings}


def test_the_solution_scores_one(task: Task, judged: Judged) -> None:
    verdict = judged(task, RIGHT)
    assert (verdict.score, verdict.resolved, verdict.stage, verdict.hacks) == (1.0, True, "resolved", ())
    assert verdict.components == {"tests": 1.0}
    assert [finding.passed for finding in verdict.findings] == [True, True, True]
    assert set(verdict.provenance["test_seconds"]) == set(task.grading.tests)
    assert json.loads(json.dumps(verdict.as_dict()))["score"] == 1.0


def test_half_right_scores_zero_and_says_which(task: Task, judged: Judged) -> None:
    verdict = judged(task, "def half(n):\n    return n // 2\n")
    assert (verdict.score, verdict.resolved, verdict.stage) == (0.0, False, "unresolved")
    assert verdict.components["tests"] == pytest.approx(2 / 3)
    assert messages(verdict) == {"test_even": "", "test_odd": "AssertionError: 3 != 3.5 (line 13)", "test_big": ""}


def test_doing_nothing_fails_each_test(task: Task, bases: Bases) -> None:
    verdict = judge(task, Submission({}), bases.box)
    assert (verdict.score, verdict.components["tests"]) == (0.0, 0.0)
    assert messages(verdict)["test_even"] == "AssertionError: 16 != 4 (line 10)"


def test_a_dead_machine_is_an_error_and_no_score(task: Task) -> None:
    verdict = grade(task, of_files(task.oracle), dead_box)
    assert (verdict.score, verdict.stage) == (None, "error")
    assert verdict.error == "SandboxDeadError: the machine is gone"


def test_a_broken_set_up_is_an_error_that_names_the_command(bases: Bases, make: Make, judged: Judged) -> None:
    verdict = judged(make(setup=("echo preparing; exit 3",)), RIGHT)
    assert verdict.score is None
    assert "'echo preparing; exit 3' failed (exit code 3): preparing" in str(verdict.error)


@pytest.mark.parametrize("code", [0, 3])
def test_a_runner_that_ends_early_is_an_error(make: Make, judged: Judged, code: int) -> None:
    """A hidden test of ours that ends its own process is our fault, whatever the exit code says."""
    source = f"import os, unittest\n\n\nclass T(unittest.TestCase):\n    def test_a(self):\n        os._exit({code})\n"
    task = make(hidden={"test_h.py": source.encode()}, grading=Grading("unittest", ("test_h.T.test_a",)))
    verdict = judged(task, RIGHT)
    assert verdict.score is None
    assert f"the unittest runner broke (exit code {code})" in str(verdict.error)


def test_missing_tests_are_not_run_and_not_passed(make: Make, judged: Judged) -> None:
    tests = ("test_half.TestHalf.test_even", "test_half.TestHalf.test_absent", "test_other.TestOther.test_x")
    verdict = judged(make(grading=Grading("unittest", tests)), RIGHT)
    assert verdict.score == 0.0
    assert messages(verdict) == {"test_even": "", "test_absent": "not run", "test_x": "not run"}


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("self.skipTest('later')", "skipped: later"),
        ("with self.subTest(i=1):\n            self.assertEqual(half(8), 5)", "AssertionError: 4.0 != 5 (line 8)"),
        ("self.assertRaises(ValueError, half, 'x')", "TypeError: unsupported operand"),
        ("half(self)", "TypeError: half.half: a hidden test may pass plain data only"),
    ],
)
def test_only_a_plain_pass_is_a_pass(make: Make, judged: Judged, body: str, says: str) -> None:
    source = "import unittest\nfrom half import half\n\n\nclass T(unittest.TestCase):\n"
    source += f"    def test_a(self):\n        {body}\n"
    task = make(hidden={"test_h.py": source.encode()}, grading=Grading("unittest", ("test_h.T.test_a",)))
    verdict = judged(task, RIGHT)
    assert verdict.score == 0.0
    assert messages(verdict)["test_a"].startswith(says)


PLAIN = """\
import unittest
import math
import pkg.inner
from pkg import inner, same, LIMIT
from helper import EXPECTED


class T(unittest.TestCase):
    def test_values(self):
        for value in [None, True, -3, 2**200, 0.1, "n\\u00e4h\\ud800", b"\\xff\\0", [1, [2]], (1, (2,)), {1, 2},
                      frozenset({3}), {"a": {1: (None,)}}, float("inf"), "", [], {}]:
            got = same(value)
            self.assertEqual(got, value)
            self.assertIs(type(got), type(value))
        self.assertTrue(math.isnan(same(float("nan"))))

    def test_names(self):
        self.assertEqual(inner.twice(2), EXPECTED)
        self.assertEqual(pkg.inner.twice(n=5), 10)
        self.assertEqual(LIMIT, 7)

    def test_errors(self):
        with self.assertRaisesRegex(ValueError, "no such 3"):
            inner.fail(3)
        with self.assertRaises(KeyError):
            inner.key()
        with self.assertRaises(Exception):
            inner.leave()
"""
INNER = """\
class Bad(ValueError):
    pass


def twice(n):
    return n * 2


def fail(n):
    raise Bad(f"no such {n}")


def key():
    return {}["x"]


def leave():
    raise SystemExit(0)
"""


def test_plain_data_errors_and_packages_cross_the_wall(make: Make, judged: Judged) -> None:
    files = {
        "pkg/__init__.py": b"LIMIT = 7\n\n\ndef same(value):\n    return value\n",
        "pkg/inner.py": INNER.encode(),
    }
    tests = ("test_p.T.test_values", "test_p.T.test_names", "test_p.T.test_errors")
    hidden = {"test_p.py": PLAIN.encode(), "helper.py": b"EXPECTED = 4\n"}
    task = make(files=files, hidden=hidden, grading=Grading("unittest", tests))
    verdict = judged(task, files={"note.txt": b"x"})
    assert messages(verdict) == {"test_values": "", "test_names": "", "test_errors": ""}
    assert verdict.score == 1.0


@pytest.mark.parametrize("text", ["", None, "\n  \n"])
def test_an_empty_submission_starts_nothing(task: Task, text: str | None) -> None:
    verdict = grade(task, from_json(text), no_box)
    assert (verdict.score, verdict.stage, verdict.resolved) == (0.0, "empty", False)
    assert len(verdict.findings) == 3


def test_a_malformed_submission_starts_nothing(task: Task) -> None:
    verdict = grade(task, from_json('{"schema": 9}'), no_box)
    assert (verdict.score, verdict.stage) == (0.0, "malformed")
    assert "schema 9; this version reads 1" in verdict.findings[0].message


def test_wrong_options_are_refused(make: Make, judged: Judged) -> None:
    with pytest.raises(ConfigError, match="did you mean 'unittest'"):
        judged(make(grading=Grading("unitest", ("a.B.c",))), RIGHT)
    with pytest.raises(TaskFormatError, match="unknown option 'calltimeout'"):
        judged(make(grading=Grading("unittest", ("a.B.c",), options={"calltimeout": 1})), RIGHT)
    with pytest.raises(TaskFormatError, match="json is in the standard library"):
        judged(make(grading=Grading("unittest", ("a.B.c",), options={"modules": ["json"]})), RIGHT)
