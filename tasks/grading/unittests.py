"""The runner ``unittest``: hidden unittest modules against submitted Python code, which never shares their process.

Options: ``modules`` (top-level modules that tests import from the submission; by default those of the task's files)
and ``call_timeout`` (processor seconds for one call into submitted code; five times as much by the clock).
Tests call functions with plain data and get plain data back: exact None, bool, int, float, str, bytes, list, tuple,
set, frozenset and dict. An argument changed in place stays as it was on the side of the test.
"""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import Mapping
from dataclasses import replace
from importlib.resources import files
from pathlib import PurePosixPath
from typing import Any

from forkgym.registry import unknown
from forkgym.sandboxes.base import ExecResult, Sandbox
from forkgym.tasks.base import Submission, Task
from forkgym.tasks.errors import GradingError, TaskFormatError
from forkgym.tasks.grading.base import Record, Report
from forkgym.tasks.grading.screen import screen
from forkgym.tasks.submission import apply

CALL_TIMEOUT = 2.0
MAX_REPORT = 16 << 20
_GUEST = "forkgym.tasks.grading.guest"
_START = 'PATH=/usr/local/bin:/usr/bin:/bin exec python3 -I -B -c "$0"'
_OPTIONS = {"modules", "call_timeout"}


def run(box: Sandbox, task: Task, submission: Submission) -> Report:
    """Run the listed tests. Raises ``GradingError`` if the runner itself breaks, and ``SandboxError``."""
    kept, dropped = screen(submission, task.hidden)
    apply(box, kept, task.workdir)
    nonce = secrets.token_hex(16)
    text = json.dumps({"boot": _guest("boot"), "sources": _sources(), "job": {**_job(task), "nonce": nonce}})
    # The tests go in over stdin: arguments, environment and files could be read by submitted code.
    result = box.exec(
        ("/bin/sh", "-c", _START, _guest("boot")),
        cwd="/",
        stdin=text.encode(),
        timeout=task.grading.timeout,
        max_output=MAX_REPORT,
    )
    return replace(_report(result, nonce), dropped=dropped)


def submitted_modules(task: Task) -> list[str]:
    """Top-level module names that hidden tests get as proxies; never one of the standard library."""
    named = task.grading.options.get("modules")
    if named is None:
        paths = [PurePosixPath(path) for path in (*task.files, *task.oracle)]
        names = {path.parts[0].removesuffix(".py") for path in paths if path.suffix == ".py"}
        return sorted(names - set(sys.stdlib_module_names))
    if not isinstance(named, list) or not all(isinstance(name, str) and name for name in named):  # pyright: ignore
        raise TaskFormatError(f"{task.id}: grading.options.modules: must be a list of module names, not {named!r}")
    if taken := sorted(set(named) & set(sys.stdlib_module_names)):  # pyright: ignore
        raise TaskFormatError(f"{task.id}: grading.options.modules: {taken[0]} is in the standard library")
    return sorted(named)  # pyright: ignore


def hidden_modules(task: Task) -> dict[str, str]:
    """Dotted module name to source, of the hidden Python files."""
    found: dict[str, str] = {}
    for path, data in task.hidden.items():
        if path.endswith(".py"):
            name = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
            try:
                found[name] = data.decode("utf-8")
            except UnicodeDecodeError as error:
                raise TaskFormatError(f"{task.id}: hidden/{path}: not UTF-8: {error}") from error
    return found


def _job(task: Task) -> dict[str, Any]:
    options: Mapping[str, Any] = task.grading.options
    for key in options:
        if key not in _OPTIONS:
            raise TaskFormatError(f"{task.id}: grading.options: {unknown('option', key, sorted(_OPTIONS))}")
    timeout = options.get("call_timeout", CALL_TIMEOUT)
    if not isinstance(timeout, int | float) or not 0 < timeout < float("inf"):
        raise TaskFormatError(f"{task.id}: grading.options.call_timeout: must be a number of seconds > 0")
    memory = task.limits.memory
    return {
        "workdir": task.workdir,
        # Below the sandbox's own limit, so that greedy code gets a MemoryError and the runner lives on.
        "memory": None if memory is None else memory // 2,
        "call_timeout": float(timeout),
        "submitted": submitted_modules(task),
        "hidden": hidden_modules(task),
        "tests": list(task.grading.tests),
    }


def _report(result: ExecResult, nonce: str) -> Report:
    lines = result.stdout.splitlines()
    events = [event for event in map(_event, lines) if event is not None and event.get("nonce") == nonce]
    kinds = [event.get("event") for event in events]
    records = {
        str(event["id"]): Record(event["passed"] is True, str(event["message"]), float(event["seconds"]))
        for event in events
        if event.get("event") == "test"
    }
    hacks = () if len(events) == len(lines) else ("something wrote to the runner's result channel",)
    if result.timed_out:
        return Report(records, timed_out=True, hacks=hacks)
    if "ready" in kinds and (result.oom_killed or result.exit_code < 0):
        # Nothing but submitted code runs beside the runner, and no signal but an own fault or SIGKILL ends it.
        how = "ran out of memory" if result.oom_killed else f"was killed by signal {-result.exit_code}"
        killed = () if result.oom_killed else (f"the test runner {how} while submitted code ran",)
        return Report(records, hacks=(*hacks, *killed), notes=(f"the test runner {how}",))
    if kinds[-1:] != ["end"]:
        problem = result.stderr.decode(errors="replace")[-2000:]
        raise GradingError(f"the unittest runner broke (exit code {result.exit_code}): {problem}")
    # After its last word all is told. That it then cannot clean up is the work of one who took its descriptors away.
    disturbed = str(events[-1].get("disturbed", ""))
    return Report(records, hacks=hacks, notes=(disturbed,) if disturbed else ())


def _event(line: bytes) -> dict[str, Any] | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) else None  # pyright: ignore


def _guest(name: str) -> str:
    return (files(_GUEST) / f"{name}.py").read_text("utf-8")


def _sources() -> dict[str, str]:
    return {f"{_GUEST}.{name}": _guest(name) for name in ("codec", "worker", "proxy", "runner")}
