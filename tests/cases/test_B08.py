"""B08: a log in which verdicts and names lie interleaved is unreadable; no verdict goes to another test's name."""

import pytest

from forkgym.tasks.base import Grading

LOGS = {
    "verdicts after two names": "com.x.T > m1\ncom.x.T > m2\nPASSED\nFAILED\n",
    "trace lines of the shell": "+ run -Dtest=m1\n+ run -Dtest=m2\nBUILD SUCCESS\nBUILD FAILURE\n",
    "two streams at once": "1..2\nok 1 - m1\n1..1\nok 1 - m2\n",
    "cut inside a line": "1..2\nok 1 - m1\nnot o",
}


@pytest.mark.parametrize("log", LOGS.values(), ids=LOGS)
@pytest.mark.parametrize("form", ["tap", "junit"])
def test_it_proves_nothing(desk, log, form):
    options = {"command": f"printf '%s' '{log}' > $FORKGYM_REPORT", "format": form}
    task = desk.task(hidden={"t": b""}, grading=Grading("command", ("m1", "m2"), 30.0, options))
    verdict = desk.grade(task, desk.work(task, "sed -i 's/1/2/' f.py"))
    assert [finding.passed for finding in verdict.findings] == [False, False, False]
    assert verdict.findings[2].message.startswith("the report is unreadable: ")
    assert (verdict.score, verdict.stage, verdict.components["tests"]) == (0.0, "unresolved", 0.0)


def test_the_same_in_order_is_read(desk):
    options = {"command": "printf '1..2\\nok 1 - m1\\nnot ok 2 - m2\\n' > $FORKGYM_REPORT; exit 1", "format": "tap"}
    task = desk.task(hidden={"t": b""}, grading=Grading("command", ("m1", "m2"), 30.0, options))
    verdict = desk.grade(task, desk.work(task, "sed -i 's/1/2/' f.py"))
    assert [finding.passed for finding in verdict.findings] == [True, False]
