"""Runs listed unittest tests of a repository inside a clean sandbox, in one process with the code that they test.

Among the tests stands a canary that must fail.
"""

from __future__ import annotations

import os
import random
import sys
import time
import unittest
from collections.abc import Sequence
from typing import Any

from forkgym.tasks.grading.guest.channel import Say
from forkgym.tasks.grading.guest.evidence import Evidence, begin

MESSAGE_CHARS = 2000


def main(boot: str, sources: Any, job: dict[str, Any]) -> None:
    """Run ``job``: keys key, workdir, path, tests, canary, changed, hidden (path to SHA-256)."""
    say, evidence = begin(job, sys.version, "unittest")
    tests, name = job["tests"], job["canary"]
    job.clear()
    report = Report(say, evidence)
    suite = load(tests, say, evidence)
    if suite:
        suite.insert(random.SystemRandom().randrange(len(suite) + 1), canary(name))
    unittest.TestSuite(suite).run(report)
    evidence.compare()
    code = int(report.failed)
    say("end", code=code, hacks=evidence.found, notes=evidence.notes)
    os._exit(code)


def load(tests: Sequence[str], say: Say, evidence: Evidence) -> list[unittest.TestCase]:
    """The listed tests that can be loaded from hidden modules; the others are told of."""
    found: list[unittest.TestCase] = []
    loader = unittest.TestLoader()
    for test in tests:
        loaded: Any = None
        try:
            loaded = loader.loadTestsFromName(test)
        except BaseException as error:  # SystemExit of a module, too
            say("uncollected", id=test, message=f"{type(error).__name__}: {error}"[:MESSAGE_CHARS])
            continue
        cases = [case for case in loaded if isinstance(case, unittest.TestCase)]
        if len(cases) != 1 or cases[0].id() != test:
            problem = getattr(cases[0], "_exception", None) if cases else None
            say("uncollected", id=test, message=f"no such test{f': {problem}' if problem else ''}"[-MESSAGE_CHARS:])
            continue
        file = getattr(sys.modules.get(type(cases[0]).__module__), "__file__", None) or ""
        method = getattr(cases[0], test.rpartition(".")[2])
        if evidence.check_source(file) and evidence.check_function(method, test):
            found.append(cases[0])
    return found


def canary(name: str) -> unittest.TestCase:
    """A test that fails."""

    def fails(self: unittest.TestCase) -> None:
        self.assertEqual(len("canary"), 0)  # noqa: PT009  # by the method that submitted code might replace

    kind = type("Test", (unittest.TestCase,), {f"test_{name}": fails, "__module__": "tests"})
    return kind(f"test_{name}")


class Report(unittest.TestResult):
    """Says of each test how it ended; a pass is said only if nothing at all spoke against it."""

    def __init__(self, say: Say, evidence: Evidence) -> None:
        super().__init__()
        self.failed = False
        self._say, self._evidence = say, evidence
        self._seen: list[tuple[str, str]] = []
        self._started = 0.0

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self._seen, self._started = [], time.monotonic()

    def addSuccess(self, test: unittest.TestCase) -> None:
        self._seen.append(("passed", ""))

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        self._seen.append(("failed", f"{err[0].__name__}: {err[1]}"))

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        self._seen.append(("failed", f"{err[0].__name__}: {err[1]}"))
        self.failed = True  # also of a class or module, which has no startTest

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Any) -> None:
        if err is not None:
            self._seen.append(("failed", f"{err[0].__name__}: {err[1]}"))

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self._seen.append(("skipped", f"skipped: {reason}"))

    def addExpectedFailure(self, test: unittest.TestCase, err: Any) -> None:
        self._seen.append(("skipped", "marked as an expected failure"))

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:
        self._seen.append(("failed", "marked as an expected failure, and passed"))

    def stopTest(self, test: unittest.TestCase) -> None:
        order = ("passed", "skipped", "failed")
        worst = max(self._seen or [("skipped", "no result")], key=lambda seen: order.index(seen[0]))
        self.failed = self.failed or worst[0] == "failed"
        self._evidence.compare()
        seconds = time.monotonic() - self._started
        self._say("test", id=test.id(), status=worst[0], message=worst[1][:MESSAGE_CHARS], seconds=seconds)
