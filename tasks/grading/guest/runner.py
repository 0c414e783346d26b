"""Runs hidden unittest modules inside a clean sandbox. It is the one process there that knows them.

It gets one JSON object on stdin and writes one JSON line per event on stdout, each with the nonce of this run.
Submitted code lives in another process (``proxy.Worker``): it cannot open these channels, read this memory or end this
run with a result.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import signal
import sys
import time
import traceback
import unittest
from typing import Any

from forkgym.tasks.grading.guest.proxy import Finder, Worker, WorkerLost, start_line

PR_SET_DUMPABLE = 4
# What a fault of this process itself raises, and SIGCHLD; all else that can be sent to it is caught and ignored.
UNTOUCHED = {"SIGKILL", "SIGSTOP", "SIGCHLD", "SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT", "SIGSYS", "SIGTRAP"}
MESSAGE_CHARS = 2000


def main(boot: str, sources: dict[str, str], job: dict[str, Any]) -> None:
    """Run ``job``: keys nonce, workdir, memory, call_timeout, submitted, hidden, tests."""
    harden()
    worker_sources = {name: text for name, text in sources.items() if name.endswith((".codec", ".worker"))}
    worker = Worker(start_line(boot, worker_sources, job["workdir"], job["memory"]), job["call_timeout"])
    sys.meta_path.insert(0, Finder(worker, job["submitted"], job["hidden"]))
    report = Report(job["nonce"], worker)
    report.say("ready")
    disturbed = ""
    try:
        for module, tests in grouped(job["tests"], job["hidden"]).items():
            run_module(module, tests, report)
    except (OSError, MemoryError) as error:
        # With no fault of ours in sight, somebody took this process's resources away: prlimit(2) needs no more than
        # an equal user id. Tests without a record have not passed.
        disturbed = f"{type(error).__name__}: {error}"
    report.say("end", disturbed=disturbed)
    worker.close()


def harden() -> None:
    """No other process may read this one's memory or descriptors, nor stop it by a catchable signal."""
    if ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        raise SystemExit("prctl(PR_SET_DUMPABLE) failed: this process cannot be closed to others")
    sys.stdin.close()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number in signal.valid_signals():
        if getattr(number, "name", "") not in UNTOUCHED:
            signal.signal(number, _ignore)


def _ignore(number: int, frame: object) -> None:
    """A handler and not SIG_IGN, which started processes would inherit."""


class Report(unittest.TestResult):
    """Writes one line for each test that ran; a pass is written only if nothing at all spoke against it."""

    def __init__(self, nonce: str, worker: Worker) -> None:
        super().__init__()
        self._nonce, self._worker = nonce, worker
        self._problem: str | None = "no result"
        self._started = 0.0
        # Submitted code must not be able to write here, nor a hidden test's own prints be taken for a line.
        self._out = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)

    def say(self, event: str, **more: Any) -> None:
        """One line on the result channel."""
        self._out.write(json.dumps({"nonce": self._nonce, "event": event, **more}) + "\n")
        self._out.flush()

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self._problem, self._worker.lost = "no result", ""
        self._started = time.monotonic()

    def addSuccess(self, test: unittest.TestCase) -> None:
        self._problem = None

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        self._problem = explain(err[1])

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        self._problem = explain(err[1])

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Any) -> None:
        if err is not None:
            self._problem = explain(err[1])

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self._problem = f"skipped: {reason}"

    def addExpectedFailure(self, test: unittest.TestCase, err: Any) -> None:
        self._problem = "marked as an expected failure"

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:
        self._problem = "marked as an expected failure, and passed"

    def stopTest(self, test: unittest.TestCase) -> None:
        problem = self._worker.lost or self._problem
        self.record(test.id(), problem, time.monotonic() - self._started)

    def record(self, test_id: str, problem: str | None, seconds: float) -> None:
        """The result of one test; ``problem`` is ``None`` for a pass."""
        self.say("test", id=test_id, passed=problem is None, message=problem or "", seconds=seconds)


def grouped(tests: list[str], hidden: dict[str, str]) -> dict[str, list[str]]:
    """Test ids by the hidden module they stand in; an id of no hidden module is not run."""
    found: dict[str, list[str]] = {}
    for test in tests:
        parts = test.split(".")
        for length in range(len(parts) - 1, 0, -1):
            if ".".join(parts[:length]) in hidden:
                found.setdefault(".".join(parts[:length]), []).append(test)
                break
    return found


def run_module(name: str, tests: list[str], report: Report) -> None:
    """Load one hidden module and run the listed tests of it, class by class."""
    try:
        module = importlib.import_module(name)
    except BaseException as error:  # WorkerLost among them
        for test in tests:
            report.record(test, f"the tests could not be loaded: {explain(error)}", 0.0)
        return
    suites: dict[str, unittest.TestSuite] = {}
    for test in tests:
        kind, _, method = test[len(name) + 1 :].rpartition(".")
        case = getattr(module, kind, None)
        if isinstance(case, type) and issubclass(case, unittest.TestCase) and hasattr(case, method):
            suites.setdefault(kind, unittest.TestSuite()).addTest(case(method))
    for suite in suites.values():
        with contextlib.suppress(WorkerLost):  # out of setUpClass: the tests of the class stay without a record
            suite.run(report)


def explain(error: BaseException) -> str:
    """The message of an exception in one short text, with the line of the hidden test."""
    if isinstance(error, WorkerLost):
        return str(error)
    lines = [
        entry.lineno for entry in traceback.extract_tb(error.__traceback__) if entry.filename.startswith("<hidden")
    ]
    where = f" (line {lines[-1]})" if lines else ""
    text = f": {error}" if str(error) else ""
    return f"{type(error).__name__}{text}"[:MESSAGE_CHARS] + where
