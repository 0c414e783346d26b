"""B01: parametrised ids with blanks are two tests, each with its own result and its full name."""

from forkgym.tasks.base import Grading

HIDDEN = b"""\
import pytest
import f


@pytest.mark.parametrize("text", ["unit 'km' is not valid", "unit 'kg' is not valid"])
def test_msg(text):
    assert f.f() == 2
    assert "km" in text, "bad - value"
"""
TESTS = tuple(f"tests/test_n.py::test_msg[unit '{unit}' is not valid]" for unit in ("km", "kg"))


def test_each_id_has_its_own_verdict(desk, sandbox_pytest):
    task = desk.task(hidden={"tests/test_n.py": HIDDEN}, grading=Grading("pytest", TESTS, 60.0))
    verdict = desk.grade(task, desk.work(task, "sed -i 's/1/2/' f.py"))
    assert [(finding.id, finding.passed) for finding in verdict.findings] == [(TESTS[0], True), (TESTS[1], False)]
    assert verdict.findings[1].message.startswith("AssertionError: bad - value")
