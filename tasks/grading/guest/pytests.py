"""Runs listed pytest tests inside a clean sandbox and says of each how it ended. Needs pytest >= 7 in the image.

Among the tests stands a canary that must fail: who makes everything pass makes it pass too.
"""

from __future__ import annotations

import importlib.util
import os
import random
import sys
import types
from collections.abc import Sequence
from typing import Any

import pytest

from forkgym.tasks.grading.guest.channel import Say
from forkgym.tasks.grading.guest.evidence import Evidence, begin

MESSAGE_CHARS = 2000
# What decides the outcome of a test.
WATCHED = (
    *("_pytest.assertion", "_pytest.config", "_pytest.fixtures", "_pytest.main", "_pytest.nodes", "_pytest.outcomes"),
    *("_pytest.python", "_pytest.python_api", "_pytest.raises", "_pytest.reports", "_pytest.runner"),
    *("_pytest.skipping", "_pytest.unittest", "pluggy", "unittest"),
)


def main(boot: str, sources: Any, job: dict[str, Any]) -> None:
    """Run ``job``: keys key, workdir, path, arguments, tests, canary, changed, hidden (path to SHA-256)."""
    say, evidence = begin(job, pytest.__version__)
    plugin = Plugin(say, evidence, job["tests"], job["canary"])
    arguments = job["arguments"] + (["-n0"] if importlib.util.find_spec("xdist") else [])
    job.clear()
    code = pytest.main(arguments, plugins=[plugin])
    plugin.close()
    say("end", code=int(code), hacks=evidence.found, notes=evidence.notes)
    # No atexit function and no thread that tests left has a say in the exit code, or keeps this process.
    os._exit(int(code))


class Plugin:
    """Keeps the listed tests, adds the canary, and says how each test ended."""

    def __init__(self, say: Say, evidence: Evidence, tests: Sequence[str], canary: str) -> None:
        self._say, self._evidence = say, evidence
        self._tests, self._canary = frozenset(tests), canary
        self._manager: Any = None
        self._plugins: list[Any] = []
        self._open: dict[str, list[Any]] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_load_initial_conftests(self) -> None:
        """Installed plugins are loaded, and nothing of the repository is."""
        self._evidence.remember(*WATCHED)

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: Any) -> None:
        """Plugins that the repository's own conftest files name are loaded."""
        self._manager, self._plugins = config.pluginmanager, list(config.pluginmanager.get_plugins())

    @pytest.hookimpl(tryfirst=True)
    def pytest_make_collect_report(self, collector: Any) -> None:
        """Before a module of tests is imported."""
        if isinstance(collector, pytest.Module):
            self._evidence.check_source(str(collector.path))

    def pytest_collectreport(self, report: Any) -> None:
        """A module that cannot be imported has no tests."""
        if report.failed:
            self._say("uncollected", id=report.nodeid, message=str(report.longrepr)[-MESSAGE_CHARS:])

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: Any, items: list[Any]) -> None:
        """Keep the listed tests whose module is the hidden one and no namesake, and add the canary."""
        kept = [item for item in items if item.nodeid in self._tests and self._genuine(item)]
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        if kept:
            kept.insert(random.SystemRandom().randrange(len(kept) + 1), canary(kept, self._canary))
        items[:] = kept

    def _genuine(self, item: Any) -> bool:
        module = getattr(item, "module", None)
        file = getattr(module, "__file__", None)
        if module is not None and (file is None or not os.path.samefile(file, str(item.path))):
            self._evidence.accuse(f"another module stands where the tests of {item.nodeid} should be")
            return False
        if isinstance(item, pytest.Function) and not self._evidence.check_function(item.obj, item.nodeid):
            return False
        return self._evidence.check_source(str(item.path))

    def pytest_runtest_logreport(self, report: Any) -> None:
        """One phase of a test, or a subtest: whatever is no plain pass speaks against it."""
        self._open.setdefault(report.nodeid, []).append(report)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """All is said about a test."""
        reports = self._open.pop(nodeid, [])
        status, message = judge(reports)
        self._evidence.compare()
        self._say("test", id=nodeid, status=status, message=message, seconds=sum(r.duration for r in reports))

    def close(self) -> None:
        """After the last test: who has come to look on?"""
        self._evidence.compare()
        for plugin in self._manager.get_plugins() if self._manager else ():
            if plugin not in self._plugins and plugin is not None:
                module = plugin if isinstance(plugin, types.ModuleType) else sys.modules.get(type(plugin).__module__)
                if self._evidence.submitted(getattr(module, "__file__", None)):
                    self._evidence.accuse("submitted code registered a pytest plugin")


def canary(items: Sequence[Any], name: str) -> Any:
    """A test that fails, beside one of ``items`` and called much the same."""
    near = random.SystemRandom().choice(items)
    module = near.getparent(pytest.Module)
    name = f"{getattr(near, 'originalname', None) or 'test'}_{name}"
    if module is None:
        return Failing.from_parent(near.parent, name=name)

    def fails() -> None:
        assert len("canary") == 0

    code = fails.__code__.replace(co_name=name, co_filename=str(near.path))
    home: Any = module.obj
    return pytest.Function.from_parent(module, name=name, callobj=types.FunctionType(code, home.__dict__, name))


class Failing(pytest.Item):
    """The canary beside tests that are no functions."""

    def runtest(self) -> None:
        """Fail."""
        raise AssertionError


def judge(reports: Sequence[Any]) -> tuple[str, str]:
    """A pass takes all three phases, and nothing that speaks against it."""
    doubtful = [report for report in reports if report.outcome != "passed" or hasattr(report, "wasxfail")]
    failed = [report for report in doubtful if report.outcome == "failed"]
    if doubtful:
        return ("failed", explain(failed[0])) if failed else ("skipped", explain(doubtful[0]))
    if not {"setup", "call", "teardown"} <= {report.when for report in reports}:
        return "skipped", "no result"
    return "passed", ""


def explain(report: Any) -> str:
    """Why a report is no plain pass, in one short text with the line of the test."""
    if hasattr(report, "wasxfail"):
        return "marked as an expected failure" + (", and passed" if report.outcome == "passed" else "")
    where: Any = report.longrepr
    if report.outcome == "skipped":
        return f"skipped: {where[2] if isinstance(where, tuple) else where}"
    crash = getattr(where, "reprcrash", None)
    text = f"{crash.message} (line {crash.lineno})" if crash else str(where or report.outcome)
    return (text if report.when == "call" else f"{report.when}: {text}")[:MESSAGE_CHARS]
