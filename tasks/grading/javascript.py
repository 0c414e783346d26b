"""The runners ``node:test``, ``jest`` and ``vitest``. Ids are ``path/of/file.js > suite > test``.

Options of ``jest`` and ``vitest``: ``bin`` (the program's script; default that of ``node_modules``), ``config`` (its
configuration file in the base repository or ``hidden/``; by default the one that the tool finds there) and
``arguments`` (further arguments). ``node:test`` knows ``arguments``, too. Node.js >= 18.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib.resources import files
from typing import Any

from forkgym.sandboxes.base import ExecResult
from forkgym.tasks.errors import TaskFormatError
from forkgym.tasks.grading.repository import Job, Plan, Result, Results, Tool, scratch_file, tail
from forkgym.tasks.grading.results import MESSAGE_CHARS, SEPARATOR

_CONFIGURATION = (".npmrc", ".yarnrc*", ".node-version", ".nvmrc", ".env", ".env.*", "tsconfig.test.json")
_MOCKS = "__mocks__/*"  # take the place of packages that tests import
_JEST = (
    *("jest.config.*", "jest.setup.*", "jest-preset.*", "jest.preset.*", "babel.config.*", ".babelrc*", ".swcrc"),
    _MOCKS,
)
_VITEST = ("vitest.config.*", "vite.config.*", "vitest.workspace.*", "vitest.setup.*", _MOCKS)
# Keys of package.json that decide how tests run; all others are taken from the submission.
_PACKAGE_KEYS = ("jest", "vitest", "scripts", "babel", "ava", "mocha", "config")
BINS = {"jest": "node_modules/jest/bin/jest.js", "vitest": "node_modules/vitest/vitest.mjs"}
RUN = {
    "jest": ("--ci", "--runInBand", "--json", "--testLocationInResults=false", "--no-cache"),
    "vitest": ("run", "--reporter=json", "--no-file-parallelism"),
}
# Each must fail. One passes if any of the assertions that it tries has been made to accept what is wrong.
_TRIES = "for (const wrong of [{wrong}]) {{ try {{ wrong(); return; }} catch {{}} }} throw new Error('canary');"
_NODE_WRONG = (
    *("equal({a}, {b})", "strictEqual({a}, {b})", "deepEqual([{a}], [{b}])", "deepStrictEqual([{a}], [{b}])"),
    "ok(false)",
)
_EXPECT_WRONG = ("toBe({b})", "toEqual({b})", "toStrictEqual({b})", "toBeNull()", "toBeGreaterThan({b})", "toThrow()")
_CANARIES = {
    # Works in modules of both kinds.
    "node": 'Promise.all([import("node:test"), import("node:assert")]).then(([{{ test }}, {{ default: assert }}]) => '
    'test("{name}", () => {{ {tries} }}));',
    # Files that import their own words may have either name.
    "jest": '(typeof test === "undefined" ? it : test)("{name}", () => {{ {tries} }});',
    "vitest": 'import {{ test as {name}, expect as {name}e }} from "vitest"; {name}("{name}", () => {{ {tries} }});',
}


def node(job: Job) -> Plan:
    """``node --test`` with a reporter of our own, which writes one JSON line for each test."""
    job.require("node")
    canary, placed = _canaries(job, "node")
    reporter = f".forkgym-{job.token}.mjs"
    command = (
        *("node", "--test", f"--test-reporter=./{reporter}", "--test-reporter-destination=stdout"),
        *job.option("arguments", list, []),
        *_test_files(job),
    )
    return Plan(
        command,
        lambda ended: _results(job, ended, _node_results(job, ended.stdout)),
        files={**placed, reporter: (files("forkgym.tasks.grading.guest") / "reporter.mjs").read_bytes()},
        env=_environment(),
        canaries=tuple(f"{file}{SEPARATOR}{canary}" for file in placed),
    )


def jest(job: Job) -> Plan:
    """Jest in one process, with the configuration of the base repository; it writes JSON."""
    return _jest_like(job, "jest")


def vitest(job: Job) -> Plan:
    """Vitest, with the configuration of the base repository; it writes the JSON that Jest does."""
    return _jest_like(job, "vitest")


def _jest_like(job: Job, tool: str) -> Plan:
    job.require("node")
    script = job.option("bin", str, BINS[tool])
    if job.base(script) is None:
        raise TaskFormatError(f"{job.task.id}: grading.options.bin: there is no {script!r} in the task's repository")
    canary, placed = _canaries(job, tool)
    config = job.option("config", str, "")
    command = (
        *("node", script, *RUN[tool], f"--outputFile={job.scratch}/report.json"),
        *([f"--config={config}"] if config else []),
        *job.option("arguments", list, []),
        *_test_files(job),
    )
    return Plan(
        command,
        lambda ended: _results(job, ended, tests_of(scratch_file(job, "report.json"), job.task.workdir)),
        files={**placed, **_packages(job)},
        env=_environment(),
        canaries=tuple(f"{file}{SEPARATOR}{canary}" for file in placed),
    )


def _environment() -> dict[str, str]:
    return {"NO_COLOR": "1", "NODE_ENV": "test"}


def _test_files(job: Job) -> list[str]:
    return list(dict.fromkeys(map(_file, job.task.grading.tests)))


def _canaries(job: Job, tool: str) -> tuple[str, dict[str, bytes]]:
    """The name of a failing test, and the hidden files with it at their end: it shares each file's process."""
    name = f"t{job.token}"
    less = secrets.randbelow(1000)
    values = {"a": less, "b": less + 1 + secrets.randbelow(1000)}
    word = {"node": "assert", "jest": f"expect({less})", "vitest": f"{name}e({less})"}[tool]
    wrong = ", ".join(
        f"() => {word}.{call.format(**values)}" for call in (_NODE_WRONG if tool == "node" else _EXPECT_WRONG)
    )
    line = "\n// @ts-ignore\n;" + _CANARIES[tool].format(name=name, tries=_TRIES.format(wrong=wrong)) + "\n"
    wanted = _test_files(job)
    return name, {path: data + line.encode() for path, data in job.task.hidden.items() if path in wanted}


def _packages(job: Job) -> dict[str, bytes]:
    """Each submitted package.json with the base's own word on how tests run."""
    found: dict[str, bytes] = {}
    for path, change in job.kept.items():
        if path.rpartition("/")[2] == "package.json" and path not in job.task.hidden:
            old = job.base(path)
            found[path] = merged(old, change.data) if change.data is not None else old or b"{}"
    return found


def merged(base: bytes | None, submitted: bytes) -> bytes:
    """The submitted package.json with those keys of the base's that decide how tests run."""
    mine, theirs = _object(base or b"{}"), _object(submitted)
    if theirs is None or mine is None:
        return base or b"{}"
    kept = {key: value for key, value in theirs.items() if key not in _PACKAGE_KEYS}
    return json.dumps({**kept, **{key: mine[key] for key in _PACKAGE_KEYS if key in mine}}, indent=2).encode()


def _object(data: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None  # pyright: ignore[reportUnknownVariableType]


def _results(job: Job, ended: ExecResult, found: list[Result] | None) -> Results:
    if found is None:
        why = "" if ended.timed_out else f"the run left no readable report (exit code {ended.exit_code})"
        return Results((), broken=why and why + tail(ended.stderr or ended.stdout))
    # What stands in a file's way, such as a module that cannot be read, is reported as a failure of the file's own.
    tests = job.task.grading.tests
    ran = {_file(result.id) for result in found if result.id in tests}
    failures = {_file(result.id): result.message for result in found if result.status == "failed"}
    why = {file: message for file, message in failures.items() if message and file not in ran}
    missing = {test: f"not run: {why[_file(test)]}" for test in tests if _file(test) in why}
    return Results(found, missing=missing)


def _file(test: str) -> str:
    return test.partition(SEPARATOR)[0]


def _node_results(job: Job, data: bytes) -> list[Result] | None:
    """One JSON line for each test, and a last one that says how many there were."""
    events = [_object(line) for line in data.splitlines()]
    if not events or any(event is None for event in events):
        return None
    *tests, end = (event for event in events if event is not None)
    if end.get("tests") != len(tests):
        return None
    return [_node_result(job, event) for event in tests]


def _node_result(job: Job, event: Mapping[str, Any]) -> Result:
    name = SEPARATOR.join([relative(str(event["file"]), job.task.workdir), *event["path"]])
    return Result(name, event["status"], str(event["message"])[:MESSAGE_CHARS], float(event["seconds"]))


def tests_of(data: bytes | None, workdir: str) -> list[Result] | None:
    """The tests of a report of Jest or Vitest, and files that stand for themselves; ``None`` if it is unreadable."""
    report = _object(data or b"")
    if report is None:
        return None
    try:
        return list(_jest_tests(workdir, report))
    except (KeyError, TypeError, AttributeError):
        return None


def _jest_tests(workdir: str, report: Mapping[str, Any]) -> Iterator[Result]:
    for file in report["testResults"]:
        where = relative(str(file["name"]), workdir)
        tests = file["assertionResults"]
        if not tests and file["status"] == "failed":
            yield Result(where, "failed", str(file.get("message", ""))[:MESSAGE_CHARS])
        for test in tests:
            name = SEPARATOR.join([where, *test["ancestorTitles"], test["title"]])
            status = test["status"] if test["status"] in ("passed", "failed") else "skipped"
            message = "\n".join(map(str, test.get("failureMessages") or []))[:MESSAGE_CHARS]
            yield Result(name, status, message, float(test.get("duration") or 0) / 1000)


def relative(file: str, workdir: str) -> str:
    """The path of a file, or of its address, below the working directory."""
    return file.removeprefix("file://").removeprefix(f"{workdir}/")


NODE = Tool(node, configuration=_CONFIGURATION, locate=lambda test: [_file(test)], options=("arguments",))
JEST = replace(NODE, plan=jest, configuration=(*_CONFIGURATION, *_JEST), options=("bin", "config", "arguments"))
VITEST = replace(JEST, plan=vitest, configuration=(*_CONFIGURATION, *_VITEST))
