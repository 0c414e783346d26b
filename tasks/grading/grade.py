"""From a submission to a verdict. Infrastructure failure is an error in the verdict, never a score."""

from __future__ import annotations

import time
from collections.abc import Callable

from forkgym.registry import resolve
from forkgym.sandboxes.base import Sandbox
from forkgym.sandboxes.errors import SandboxError
from forkgym.tasks.base import Finding, Stage, Submission, Task, Verdict
from forkgym.tasks.errors import GradingError
from forkgym.tasks.grading.base import Report, Runner

RUNNERS = {
    "unittest": "forkgym.tasks.grading.unittests:run",
    "unittest-suite": "forkgym.tasks.grading.suites:UNITTEST_SUITE",
    "pytest": "forkgym.tasks.grading.pytests:PYTEST",
    "node:test": "forkgym.tasks.grading.javascript:NODE",
    "jest": "forkgym.tasks.grading.javascript:JEST",
    "vitest": "forkgym.tasks.grading.javascript:VITEST",
    "go test": "forkgym.tasks.grading.compiled:GO",
    "cargo test": "forkgym.tasks.grading.compiled:CARGO",
    "ctest": "forkgym.tasks.grading.compiled:CTEST",
    "command": "forkgym.tasks.grading.commands:COMMAND",
    "kernel": "forkgym.tasks.grading.kernel:run",
    "harbor": "forkgym.tasks.importers.harbor_runner:run",
    "swebench": "forkgym.tasks.importers.swebench_runner:run",
}


def grade(task: Task, submission: Submission, clean: Callable[[Task], Sandbox]) -> Verdict:
    """Judge what an agent submitted. ``clean`` makes a clean sandbox of the task, such as ``Bases.box``.

    No sandbox is started for an empty or malformed submission, which score 0.
    """
    if submission.malformed:
        finding = Finding("submission", False, message=submission.malformed)
        return Verdict(0.0, False, "malformed", {"tests": 0.0}, (finding,), provenance=_provenance(task, 0.0))
    if submission.empty:
        findings = tuple(Finding(test, False, message="not run: nothing was changed") for test in task.grading.tests)
        return Verdict(0.0, False, "empty", {"tests": 0.0}, findings, provenance=_provenance(task, 0.0))
    return judge(task, submission, clean)


def judge(task: Task, submission: Submission, clean: Callable[[Task], Sandbox]) -> Verdict:
    """Run the hidden tests on a clean sandbox with the submission, even an empty one.

    What the submission may not bring, such as a file where a hidden test stands, is dropped. A score of 1 takes a pass
    of each listed test. Raises ``ConfigError`` for an unknown runner.
    """
    runner: Runner = resolve("runner", task.grading.runner, RUNNERS)
    start = time.monotonic()
    try:
        with clean(task) as box:
            report = runner(box, task, submission)
    except (SandboxError, GradingError) as error:
        more = _provenance(task, time.monotonic() - start)
        return Verdict(None, False, "error", error=f"{type(error).__name__}: {error}", provenance=more)
    more = _provenance(task, time.monotonic() - start)
    more["test_seconds"] = {test: record.seconds for test, record in report.records.items()}
    more |= {"dropped": dict(report.dropped)} if report.dropped else {}
    more |= {"notes": list(report.notes)} if report.notes else {}
    return _verdict(task, report, more)


def _verdict(task: Task, report: Report, provenance: dict[str, object]) -> Verdict:
    findings = tuple(_finding(test, report) for test in task.grading.tests)
    passed = sum(finding.passed for finding in findings)
    void = bool(report.hacks or report.broken or report.timed_out)
    resolved = passed == len(findings) and not void
    stage: Stage = "timeout" if report.timed_out else "resolved" if resolved else "unresolved"
    components = {**report.components, "tests": 0.0 if report.hacks or report.broken else passed / len(findings)}
    if report.broken:
        findings += (Finding("run", False, weight=0.0, message=report.broken),)
    score = report.score if report.score is not None and not void else float(resolved)
    return Verdict(score, resolved, stage, components, findings, report.hacks, provenance=provenance)


def _finding(test: str, report: Report) -> Finding:
    record = report.records.get(test)
    if record is None:
        return Finding(test, False, message="not run" + (": out of time" if report.timed_out else ""))
    return Finding(test, record.passed, message=record.message)


def _provenance(task: Task, seconds: float) -> dict[str, object]:
    return {"task": task.id, "digest": task.digest, "runner": task.grading.runner, "seconds": seconds}
