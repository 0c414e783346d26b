"""B05: code that ends its process with status 0 has passed nothing: each listed test needs its own pass."""

import pytest

from forkgym.tasks.base import Grading

HIDDEN = b"""\
import unittest
import f


class T(unittest.TestCase):
    def test_1(self):
        self.assertEqual(f.first(), 1)

    def test_2(self):
        f.second()

    def test_3(self):
        self.assertEqual(f.first(), 0)
"""
TESTS = tuple(f"test_b.T.test_{number}" for number in (1, 2, 3))


@pytest.mark.parametrize(
    ("end", "says"),
    [
        ("import os; os._exit(0)", "submitted code was lost: the process ended"),
        ("import sys; sys.exit(0)", "Submitted: SystemExit: 0 (line 10)"),
        ("quit()", "Submitted: SystemExit: None (line 10)"),
    ],
)
def test_an_early_end_is_no_pass(desk, end, says):
    task = desk.task(hidden={"test_b.py": HIDDEN}, grading=Grading("unittest", TESTS))
    code = f"def first():\\n    return 1\\n\\n\\ndef second():\\n    {end}\\n"
    verdict = desk.grade(task, desk.work(task, f"printf '{code}' > f.py"))
    assert (verdict.score, verdict.resolved) == (0.0, False)
    assert [finding.passed for finding in verdict.findings] == [True, False, False]
    assert verdict.findings[1].message == says
    assert verdict.findings[2].message == "AssertionError: 1 != 0 (line 13)"
