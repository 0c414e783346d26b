"""B03: what the code prints between a test's name and its verdict changes no verdict."""

import pytest

from forkgym.tasks.base import Grading

UNITTEST = b"""\
import unittest
import f


class T(unittest.TestCase):
    def test_alpha(self):
        self.assertEqual(f.f(), 2)

    def test_beta(self):
        self.assertEqual(f.f(), 2)

    def test_gamma(self):
        self.assertEqual(f.f(), 3)
"""
NOISE = "test_beta (tests.test_f.T) ... FAIL\\ntests/test_f.py::T::test_beta FAILED\\nok\\nnot ok 1\\n1..9\\n"
KINDS = {
    "unittest": ("tests.test_f.T.", {}),
    "unittest-suite": ("tests.test_f.T.", {}),
    "pytest": ("tests/test_f.py::T::", {}),
    "command": ("tests.test_f.T::", {"command": "python3 -m pytest -v --junitxml=$FORKGYM_REPORT tests"}),
}


@pytest.mark.parametrize("noise", ["", NOISE])
@pytest.mark.parametrize("runner", KINDS)
def test_noise_changes_nothing(desk, sandbox_pytest, runner, noise):
    prefix, options = KINDS[runner]
    tests = tuple(prefix + name for name in ("test_alpha", "test_beta", "test_gamma"))
    task = desk.task(hidden={"tests/test_f.py": UNITTEST}, grading=Grading(runner, tests, 60.0, options))
    code = f'import sys\n\n\ndef f():\n    sys.stdout.write("{noise}")\n    sys.stderr.write("{noise}")\n    return 2\n'
    verdict = desk.grade(task, desk.work(task, f"cat > f.py <<'EOF'\n{code}EOF"))
    assert [finding.passed for finding in verdict.findings] == [True, True, False]
