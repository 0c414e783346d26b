"""The runner ``pytest``: listed node ids, each with a plain pass of its own.

Options: ``python`` (the interpreter, with pytest >= 7; default ``python3``), ``path`` (directories put on ``sys.path``
first; default the working directory, as ``python -m pytest`` does), ``arguments`` (further arguments of pytest) and
``config`` (the configuration file; by default the one that pytest would choose in the base repository).
"""

from __future__ import annotations

import configparser
import hashlib
import secrets
import tomllib
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from forkgym.sandboxes.base import ExecResult
from forkgym.tasks.errors import GradingError, TaskFormatError
from forkgym.tasks.grading import signed
from forkgym.tasks.grading.repository import Job, Plan, Result, Results, Tool, tail

PYTHON_CONFIGURATION = (
    *("sitecustomize.*", "sitecustomize/*", "usercustomize.*", "usercustomize/*"),
    *("*.pth", "*.egg-info/*", "*.dist-info/*", "pyvenv.cfg"),
)
_FILES = ("pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")
_TESTS_FAILED = 1
CANARY = "canary"


def plan(job: Job) -> Plan:
    """Start pytest with a reporting plugin and the base's configuration."""
    name, text = _configuration(job)
    config = f".forkgym-{job.token}{PurePosixPath(name).suffix or '.ini'}"
    started = guest_plan(job, "pytests", {"arguments": _arguments(job, config)})
    return replace(started, files={config: text})


def guest_plan(job: Job, program: str, more: dict[str, Any]) -> Plan:
    """Start one of our own programs, which imports hidden tests and submitted code and signs what it reports."""
    key, canary = secrets.token_hex(16), secrets.token_hex(4)
    tests = job.task.grading.tests
    boot, stdin = signed.program(
        ("channel", "evidence", program),
        {
            "key": key,
            "canary": canary,
            "workdir": job.task.workdir,
            "path": [f"{job.task.workdir}/{entry}".removesuffix("/.") for entry in job.option("path", list, ["."])],
            "tests": list(tests),
            "changed": list(job.kept),
            "hidden": {path: hashlib.sha256(data).hexdigest() for path, data in job.task.hidden.items()},
            **more,
        },
    )
    return Plan(
        command=_python(job, boot),
        read=lambda ended: read(ended, key, canary, tests),
        env={"PYTHONDONTWRITEBYTECODE": "1"},
        stdin=stdin,
        canaries=(CANARY,),
    )


def _python(job: Job, boot: str) -> tuple[str, ...]:
    """The interpreter, started where nothing of the submission can be imported."""
    python = job.option("python", str, "python3")
    inside = PurePosixPath(python).is_relative_to(job.task.workdir)
    if inside and PurePosixPath(python).relative_to(job.task.workdir).parts[0] not in (".venv", "venv"):
        where = f"{job.task.id}: grading.options.python: {python}"
        raise TaskFormatError(f"{where} could be submitted; below the working directory it must stand in .venv or venv")
    job.require(python)
    return ("/bin/sh", "-c", 'cd / && exec "$0" -s -B -c "$1"', python, boot)


def read(ended: ExecResult, key: str, canary: str, tests: tuple[str, ...]) -> Results:
    """The records of a run. Raises ``GradingError`` if it did not begin."""
    events, forged = signed.events(ended, key)
    if not events:
        if forged or ended.timed_out or ended.oom_killed:
            return Results((), broken="the run did not begin")
        raise GradingError(f"the test runner did not start (exit code {ended.exit_code}){tail(ended.stderr)}")
    found = [_result(event, canary) for event in events if event["event"] == "test"]
    modules = [event for event in events if event["event"] == "uncollected"]
    missing = {test: f"not collected: {m['message']}" for m in modules for test in tests if _within(test, m["id"])}
    end = events[-1] if events[-1]["event"] == "end" else {}
    hacks = (*end.get("hacks", ()), *(["something wrote to the runner's result channel"] if forged else []))
    failed = bool(modules) or any(result.status == "failed" for result in found)
    agrees = not found or ended.exit_code == (_TESTS_FAILED if failed else 0)
    broken = "" if end or ended.timed_out else f"the run ended before its last word (exit code {ended.exit_code})"
    notes = [*end.get("notes", ())]
    notes += [] if found or missing else [f"no test was run (exit code {ended.exit_code}){tail(ended.stderr)}"]
    return Results(found, agrees, missing, hacks, tuple(notes), broken)


def _result(event: dict[str, Any], canary: str) -> Result:
    name = CANARY if event["id"].endswith(canary) else event["id"]
    return Result(name, event["status"], event["message"], event["seconds"])


def _within(test: str, node: str) -> bool:
    return test == node or test.startswith((f"{node}::", f"{node}/")) or not node


def _arguments(job: Job, config: str) -> list[str]:
    files = list(dict.fromkeys(map(_file, job.task.grading.tests)))
    there = [file for file in files if file in job.task.hidden]
    return [
        *("-c", config, "--rootdir", job.task.workdir, "--confcutdir", job.task.workdir),
        *("-o", f"cache_dir={job.scratch}/cache", "--color=no", "--maxfail=0", "--continue-on-collection-errors"),
        *job.option("arguments", list, []),
        *(there or files),
    ]


def _file(test: str) -> str:
    return test.partition("::")[0]


def _configuration(job: Job) -> tuple[str, bytes]:
    """Name and contents of the file that pytest would read in the base repository, hidden files counted in."""
    if "config" in job.task.grading.options:
        name = job.option("config", str, "")
        text = job.base(name)
        if text is None:
            raise TaskFormatError(f"{job.task.id}: grading.options.config: there is no {name!r} in the repository")
        return name, text
    for name in _FILES:
        text = job.base(name)
        if text is not None and _configures(name, text):
            return name, text
    return "pytest.ini", b"[pytest]\n"


def _configures(name: str, text: bytes) -> bool:
    """Does pytest take this file for its configuration?"""
    if name.endswith("pytest.ini") or name.endswith("pytest.toml"):
        return True
    try:
        if name == "pyproject.toml":
            return "pytest" in tomllib.loads(text.decode()).get("tool", {})
        parser = configparser.ConfigParser(interpolation=None, strict=False)
        parser.read_string(text.decode())
    except (ValueError, configparser.Error):
        return False
    return parser.has_section("pytest" if name == "tox.ini" else "tool:pytest")


PYTEST = Tool(
    plan,
    configuration=(*PYTHON_CONFIGURATION, "conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml"),
    locate=lambda test: [_file(test)],
    options=("python", "path", "arguments", "config"),
)
