"""The runners ``go test``, ``cargo test`` and ``ctest``: tests that are built from the submission, without a network.

- ``go test``: ids are ``import/path::TestX`` or ``import/path::TestX/sub``. Option: ``arguments``.
- ``cargo test``: ids are ``target::module::test``; the target is ``lib``, ``bin/NAME`` or the name of a file of tests/.
  Options: ``package`` (of a workspace) and ``arguments`` (such as ``--all-features``).
- ``ctest``: ids are the names that ``add_test`` gave. Options: ``build`` (a build directory of the base, relative; by
  default a fresh one), ``configure`` (arguments of cmake) and ``last_word`` (true: a test counts only if it also prints
  the value of the variable ``FORKGYM_LAST_WORD``, so that code under test cannot end it early with exit code 0).

What the base was set up with (module cache, vendored crates, build directories) is used; nothing is downloaded.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from forkgym.sandboxes.base import ExecResult
from forkgym.tasks.grading import results
from forkgym.tasks.grading.repository import Job, Plan, Result, Results, Tool, scratch_file, tail
from forkgym.tasks.grading.results import MESSAGE_CHARS

BUILD_FAILED = 97
_SILENT = "ended with exit code 0 before its last word"
_STATUS = {
    "pass": "passed",
    "ok": "passed",
    "fail": "failed",
    "failed": "failed",
    "skip": "skipped",
    "ignored": "skipped",
}


def go(job: Job) -> Plan:
    """``go test -json`` of the packages that hold listed tests, with a failing test beside the hidden ones."""
    job.require("go")
    packages = list(dict.fromkeys(test.partition("::")[0] for test in job.task.grading.tests))
    names = {re.escape(test.partition("::")[2].partition("/")[0]) for test in job.task.grading.tests}
    canary = f"TestZ{job.token}"
    command = (
        *("go", "test", "-json", "-count=1", "-run", f"^({'|'.join(sorted([*names, canary]))})$"),
        *job.option("arguments", list, []),
        *packages,
    )
    env = {"GOPROXY": "off", "GOTOOLCHAIN": "local"}
    placed = dict(_go_canaries(job, canary))
    return Plan(command, lambda ended: _go_results(ended, canary), files=placed, env=env, canaries=(canary,))


def _go_canaries(job: Job, name: str) -> Iterator[tuple[str, bytes]]:
    for path, data in job.task.hidden.items():
        package = re.search(rb"^package\s+(\w+)", data, re.MULTILINE)
        if path.endswith("_test.go") and package:
            folder = path.rpartition("/")[0]
            text = f'package {package[1].decode()}\n\nimport "testing"\n\nfunc {name}(t *testing.T) {{ t.Fatal("") }}\n'
            yield f"{folder}/z{job.token}_test.go".lstrip("/"), text.encode()


def _go_results(ended: ExecResult, canary: str) -> Results:
    found: list[Result] = []
    said: dict[str, list[str]] = {}
    failed_packages: list[str] = []
    for event in _objects(ended.stdout):
        package, test, action = event.get("Package", ""), event.get("Test"), event.get("Action")
        name = f"{package}::{test}"
        if action == "output" and len(said.setdefault(name, [])) < 100:
            said[name].append(str(event.get("Output", "")))
        elif action == "fail" and test is None:
            failed_packages.append(package)
        elif test is not None and action in ("pass", "fail", "skip"):
            message = "" if action == "pass" else "".join(said.get(name, [])).strip()[-MESSAGE_CHARS:]
            name = canary if test == canary else name
            found.append(Result(name, _STATUS[action], message, float(event.get("Elapsed", 0.0))))  # pyright: ignore
    found = _one_canary(found, canary)
    failed = bool(failed_packages) or any(result.status == "failed" for result in found)
    notes = () if found else (f"no test was run{tail(ended.stderr or ended.stdout)}",)
    return Results(found, (ended.exit_code != 0) == failed, notes=notes)


def _one_canary(found: list[Result], canary: str) -> list[Result]:
    """One record for the canaries of all packages: the best of them, as each must fail."""
    mine = [result for result in found if result.id == canary]
    passed = [result for result in mine if result.status == "passed"]
    return [result for result in found if result.id != canary] + (passed or mine)[:1]


def cargo(job: Job) -> Plan:
    """``cargo test`` of the targets that hold listed tests; each says in JSON how its tests ended."""
    job.require("cargo")
    canary = f"z{job.token}"
    line = _CARGO_CANARY.replace("NAME", canary).encode()
    targets = list(dict.fromkeys(map(_target, job.task.grading.tests)))
    placed = {path: data + line for path, data in job.task.hidden.items() if _cargo_target(path) in targets}
    package = job.option("package", str, "")
    common = ["--offline", "--no-fail-fast", *(["-p", package] if package else []), *job.option("arguments", list, [])]
    steps = [f"cargo test --no-run {_quoted([*common, *_selected(targets)])} >&2 || exit {BUILD_FAILED}", "code=0"]
    for target in targets:
        steps.append(f"printf '\\n{json.dumps({'target': target})}\\n'")
        # Stable toolchains print their tests as JSON if told that they are no stable ones.
        run = f"RUSTC_BOOTSTRAP=1 cargo test --quiet {_quoted([*common, *_selected([target])])}"
        steps.append(f"{run} -- -Z unstable-options --format json --report-time || code=$?")
    steps.append("exit $code")
    env = {"CARGO_NET_OFFLINE": "true", "CARGO_TERM_COLOR": "never"}
    return Plan(
        ("/bin/bash", "-c", "\n".join(steps)),
        lambda ended: _cargo_results(ended, canary),
        files=placed,
        env=env,
        canaries=(canary,) if placed else (),
    )


# Fails unless one of the macros that tests use was made to accept what is wrong; it then passes.
_CARGO_CANARY = """
#[test]
fn NAME() {
    let wrong: [fn(); 4] = [|| assert!(1 > 2), || assert_eq!(1, 2), || assert_ne!(1, 1), || panic!("canary")];
    for one in wrong {
        if ::std::panic::catch_unwind(one).is_ok() {
            return;
        }
    }
    ::std::panic::resume_unwind(::std::boxed::Box::new("canary"));
}
"""


def _target(test: str) -> str:
    return test.partition("::")[0]


def _cargo_target(path: str) -> str:
    """The integration test that a file of ``tests/`` is; empty for any other file."""
    found = re.search(r"(?:^|/)tests/(\w[\w-]*)(?:\.rs|/main\.rs)$", path)
    return found[1] if found else ""


def _selected(targets: list[str]) -> list[str]:
    found: list[str] = []
    for target in targets:
        kind, _, name = target.rpartition("/")
        found += ["--lib"] if target == "lib" else ["--bin", name] if kind == "bin" else ["--test", target]
    return found


def _quoted(words: list[str]) -> str:
    return " ".join("'" + word.replace("'", "'\\''") + "'" for word in words)


def _cargo_results(ended: ExecResult, canary: str) -> Results:
    if broken := _build_failure(ended):
        return Results((), True, broken=broken)
    found: list[Result] = []
    target = ""
    for event in _objects(ended.stdout):
        if "target" in event:
            target = str(event["target"])
        elif event.get("type") == "test" and event.get("event") in _STATUS:
            name = str(event.get("name", ""))
            status = _STATUS[str(event["event"])]
            message = "" if status == "passed" else str(event.get("stdout", event.get("reason", "")))[-MESSAGE_CHARS:]
            name = canary if name == canary else f"{target}::{name}"
            found.append(Result(name, status, message, float(event.get("exec_time") or 0.0)))  # pyright: ignore
    return Results(_one_canary(found, canary))


def ctest(job: Job) -> Plan:
    """Configure, build, and ``ctest --output-junit``. Each test is a process of its own."""
    job.require("cmake", "ctest")
    build = job.option("build", str, "")
    place = f"{job.task.workdir}/{build}" if build else f"{job.scratch}/build"
    names = "|".join(re.escape(test) for test in job.task.grading.tests)
    configure = _quoted(job.option("configure", list, []))
    steps = [
        f"cmake -S . -B {place} {configure} >&2 && cmake --build {place} --parallel 2 >&2 || exit {BUILD_FAILED}",
        f"exec ctest --test-dir {place} --no-tests=error --test-output-size-passed 1000000 "
        f"-R {_quoted([f'^({names})$'])} "
        f"--output-junit {job.scratch}/report.xml >&2",
    ]
    word = secrets.token_hex(16) if job.option("last_word", bool, False) else ""
    return Plan(
        ("/bin/bash", "-c", "\n".join(steps)),
        lambda ended: _ctest_results(job, ended, word),
        env={"FORKGYM_LAST_WORD": word} if word else {},
    )


def _ctest_results(job: Job, ended: ExecResult, word: str) -> Results:
    if broken := _build_failure(ended):
        return Results((), True, broken=broken)
    data = scratch_file(job, "report.xml")
    if data is None:
        return Results((), broken="" if ended.timed_out else f"ctest left no report{tail(ended.stderr)}")
    try:
        found = results.junit(data, with_class=False)
    except results.UnreadableError as error:
        return Results((), broken=f"the report of ctest is unreadable: {error}")
    agrees = (ended.exit_code != 0) == any(result.status == "failed" for result in found)
    silent = [result.id for result in found if result.status == "passed" and word not in result.output]
    return Results(
        [replace(result, status="failed", message=_SILENT) if result.id in silent else result for result in found],
        agrees,
    )


def _build_failure(ended: ExecResult) -> str:
    return f"the build failed{tail(ended.stderr)}" if ended.exit_code == BUILD_FAILED else ""


def _objects(stream: bytes) -> Iterator[dict[str, Any]]:
    """The lines that are JSON objects; others are what tests printed."""
    for line in stream.splitlines():
        if line.startswith(b"{"):
            try:
                value = json.loads(line)
            except (ValueError, RecursionError):
                continue
            yield value


GO = Tool(
    go,
    configuration=("go.work", "go.work.sum", "*_test.go"),
    manifests=("go.mod", "go.sum", "vendor/*"),
    options=("arguments",),
)
CARGO = Tool(
    cargo,
    configuration=(".cargo/*", "rust-toolchain", "rust-toolchain.toml", "nextest.toml"),
    manifests=("Cargo.toml", "Cargo.lock", "build.rs", "vendor/*"),
    locate=lambda test: [f"tests/{_target(test)}.rs"],
    options=("package", "arguments"),
)
CTEST = Tool(
    ctest,
    configuration=(
        "CTestConfig.cmake",
        "CTestCustom.cmake",
        "CMakeUserPresets.json",
        "CMakePresets.json",
        "CMakeCache.txt",
    ),
    manifests=("CMakeLists.txt", "*.cmake", "*.cmake.in"),
    options=("build", "configure", "last_word"),
)
