"""Each runner on a small repository of its language, with the real tool in a real sandbox."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from forkgym.registry import resolve
from forkgym.sandboxes.base import Limits, Mount, Sandbox
from forkgym.tasks.base import FileChange, Grading, Submission, Task, Verdict
from forkgym.tasks.errors import TaskFormatError
from forkgym.tasks.grading import RUNNERS, grade, judge
from forkgym.tasks.grading.repository import Tool
from forkgym.tasks.submission import of_files
from forkgym.tasks.workspace import Bases, prepare, spec_of

NODE_MODULES = Path(os.environ.get("FORKGYM_TEST_NODE_MODULES", "/var/tmp/forkgym-test-js/node_modules"))
Files = Mapping[str, str | bytes]


@dataclass(frozen=True)
class Kind:
    """An entry of ``runners.yaml``."""

    runner: str
    needs: list[str]
    files: dict[str, str]
    hidden: dict[str, str]
    tests: list[str]
    fixed: dict[str, str]
    half: dict[str, str]
    exits: dict[str, str]
    options: dict[str, Any] = field(default_factory=dict)

    def task(self, **changes: Any) -> Task:
        values: dict[str, Any] = {
            "id": "half",
            "family": "swe",
            "instruction": "It doubles; it should halve.",
            "split": "train",
            "files": encoded(self.files),
            "hidden": encoded(self.hidden),
            "oracle": encoded(self.fixed),
            "grading": self.grading(),
            "limits": Limits(memory=2 << 30, pids=512),
        }
        return Task(**(values | changes))

    def grading(self, *more: str, timeout: float = 280.0) -> Grading:
        return Grading(self.runner, (*self.tests, *more), timeout, self.options)


def encoded(files: Files) -> dict[str, bytes]:
    return {path: text.encode() if isinstance(text, str) else text for path, text in files.items()}


KINDS = {
    name: Kind(**entry) for name, entry in yaml.safe_load(Path(__file__).with_name("runners.yaml").read_text()).items()
}
PYTEST, CTEST = KINDS["pytest"], KINDS["ctest"]


class Bench:
    """A kind of tests, and what this machine needs for it."""

    def __init__(self, kind: Kind, bases: Bases) -> None:
        self.kind, self.bases = kind, bases

    def clean(self, task: Task) -> Sandbox:
        """A clean sandbox; Jest and Vitest are mounted into it."""
        if task.grading.runner not in ("jest", "vitest"):
            return self.bases.box(task)
        mount = Mount(str(NODE_MODULES), f"{task.workdir}/node_modules")
        box = self.bases.backend.create(replace(spec_of(task), mounts=(mount,)))
        prepare(box, task)
        return box

    def judge(self, files: Files, task: Task | None = None) -> Verdict:
        """The verdict for a submission of these files."""
        return judge(task or self.kind.task(), of_files(encoded(files)), self.clean)


@pytest.fixture
def bench(request: pytest.FixtureRequest, bases: Bases, has_program: Callable[..., str]) -> Bench:
    """The kind that a test is parametrised with."""
    kind = KINDS[request.param]
    has_program(*kind.needs)
    if kind.runner in ("jest", "vitest") and not (NODE_MODULES / kind.runner).is_dir():
        pytest.skip(
            f"{NODE_MODULES} holds no {kind.runner}; .ci/run installs it, FORKGYM_TEST_NODE_MODULES names another"
        )
    return Bench(kind, bases)


def each(*names: str):
    return pytest.mark.parametrize("bench", names or list(KINDS), indirect=True)


def passed(verdict: Verdict) -> list[bool]:
    return [finding.passed for finding in verdict.findings]


@each()
def test_the_solution_resolves(bench: Bench) -> None:
    verdict = bench.judge(bench.kind.fixed)
    assert [(f.id, f.passed, f.message) for f in verdict.findings] == [(test, True, "") for test in bench.kind.tests]
    assert (verdict.score, verdict.stage, verdict.hacks, verdict.error) == (1.0, "resolved", (), None)
    assert "dropped" not in verdict.provenance


@each()
def test_half_right_is_told_test_by_test(bench: Bench) -> None:
    verdict = bench.judge(bench.kind.half)
    assert passed(verdict) == [True, False, True]
    assert (verdict.score, verdict.stage, verdict.hacks, verdict.error) == (0.0, "unresolved", (), None)
    assert verdict.components["tests"] == pytest.approx(2 / 3)


@each()
def test_doing_nothing_fails_each_test(bench: Bench) -> None:
    verdict = bench.judge({})
    assert passed(verdict) == [False, False, False]
    assert (verdict.score, verdict.stage, verdict.error) == (0.0, "unresolved", None)


@each()
def test_an_early_end_with_status_0_is_no_pass(bench: Bench) -> None:
    """B05, for every runner."""
    verdict = bench.judge(bench.kind.exits)
    assert (verdict.score, verdict.components["tests"], verdict.stage, verdict.error) == (0.0, 0.0, "unresolved", None)


@each("pytest", "node", "go")
def test_a_listed_test_that_does_not_exist_is_not_run(bench: Bench) -> None:
    other = f"{bench.kind.tests[0]}x"
    verdict = bench.judge(bench.kind.fixed, bench.kind.task(grading=bench.kind.grading(other)))
    assert passed(verdict) == [True, True, True, False]
    assert (verdict.findings[3].id, verdict.findings[3].message, verdict.score) == (other, "not run", 0.0)


BROKEN = {
    "node": ({"half.js": "export const half = (n) =>"}, "not run: "),
    "jest": ({"half.js": "module.exports = (n) =>"}, "SyntaxError"),
    "go": ({"sub/half.go": "package sub\n\nfunc Half("}, "syntax error"),
    "cargo": ({"src/lib.rs": "pub fn half("}, "the build failed"),
    "ctest": ({"half.c": "double half("}, "the build failed"),
    "pytest": ({"half.py": "def half("}, "SyntaxError"),
    "unittest-suite": ({"half.py": "def half("}, "'(' was never closed"),
}


@pytest.mark.parametrize(("bench", "files", "says"), [(k, *v) for k, v in BROKEN.items()], indirect=["bench"])
def test_code_that_does_not_compile_is_unresolved_and_no_error(bench: Bench, files: dict[str, str], says: str) -> None:
    verdict = bench.judge(files)
    assert (verdict.score, verdict.components["tests"], verdict.stage, verdict.error) == (0.0, 0.0, "unresolved", None)
    assert says in str(verdict.findings) + str(verdict.provenance)


@each("pytest", "unittest-suite", "node", "jest", "cargo")
def test_listed_tests_of_the_base_are_as_safe_as_hidden_ones(bench: Bench) -> None:
    """A task may list tests that the agent has seen, and bring none of them; here they stand beside the sources."""
    kind = bench.kind
    (seen,) = kind.hidden
    place = seen if kind.runner == "cargo test" else seen.removeprefix("tests/").removeprefix("test/")
    tests = [test.replace("tests.", "").replace("tests/", "").replace("test/", "") for test in kind.tests]
    text = kind.hidden[seen].replace("../", "./") if place != seen else kind.hidden[seen]
    task = kind.task(
        files=encoded({**kind.files, place: text}), hidden={}, grading=replace(kind.grading(), tests=tuple(tests))
    )
    assert bench.judge(kind.fixed, task).score == 1.0
    verdict = bench.judge({place: "", **kind.half}, task)
    assert passed(verdict) == [True, False, True]
    assert verdict.provenance["dropped"] == {place: "a hidden test stands there"}
    assert bench.judge({place: ""}, task).score == 0.0


HANGS = {
    "pytest": {"half.py": "while True:\n    pass\n"},
    "tap": {"half.sh": "while :; do :; done\n"},
    "node": {"half.js": "for (;;) {}\nexport const half = 0;\n"},
}


@pytest.mark.parametrize(("bench", "files"), HANGS.items(), indirect=["bench"])
def test_a_hang_is_a_timeout(bench: Bench, files: dict[str, str]) -> None:
    verdict = bench.judge(files, bench.kind.task(grading=bench.kind.grading(timeout=3.0)))
    assert (verdict.score, verdict.stage, verdict.error) == (0.0, "timeout", None)


PLANTED: dict[str, Files] = {
    "node": {".npmrc": b"node-options=--eval=0\n", "node_modules/x/index.js": b""},
    "jest": {
        "jest.config.js": b"module.exports = { testMatch: [] };\n",
        ".babelrc": b"nonsense",
        "__mocks__/semver.js": b"module.exports = { eq: () => true };\n",
    },
    "vitest": {"vitest.config.ts": b"export default { test: { include: [] } };\n", "vite.config.js": b"nonsense"},
    "go": {
        "go.work": b"go 1.18\n\nuse ./other\n",
        "sub/main_test.go": b'package sub\n\nimport ("os"; "testing")\n\nfunc TestMain(m *testing.M) { os.Exit(0) }\n',
        "go.mod": b"module example.com/half\n\ngo 1.18\n\nreplace example.com/x => ./x\n",
    },
    "cargo": {
        ".cargo/config.toml": b'[target.x86_64-unknown-linux-gnu]\nrunner = "true"\n',
        "rust-toolchain.toml": b'[toolchain]\nchannel = "none"\n',
        "build.rs": b"fn main() { std::process::exit(1) }\n",
        "tests/halves.rs": b"#[test]\nfn of_8() {}\n",
    },
    "ctest": {
        "CTestCustom.cmake": b"set(CTEST_CUSTOM_TESTS_IGNORE of.2)\n",
        "CMakePresets.json": b"nonsense",
        "CMakeLists.txt": b"cmake_minimum_required(VERSION 3.20)\nproject(half C)\nenable_testing()\n"
        b'add_test(NAME "of 8" COMMAND true)\n',
        "tests/CMakeLists.txt": b'add_test(NAME "of 8" COMMAND true)\n',
    },
    "junit": {"conftest.py": b"raise SystemExit(0)\n", "pytest.ini": b"[pytest]\npython_files = nothing\n"},
    "unittest-suite": {
        "tests/__init__.py": b"raise SystemExit(0)\n",
        "sitecustomize.py": b"raise SystemExit(0)\n",
        "usercustomize/__init__.py": b"raise SystemExit(0)\n",
    },
}


@pytest.mark.parametrize(("bench", "planted"), PLANTED.items(), indirect=["bench"])
def test_what_a_tool_would_load_by_itself_is_left_out_and_said(bench: Bench, planted: Files) -> None:
    right = bench.judge({**planted, **bench.kind.fixed})
    assert (right.score, right.hacks) == (1.0, ())
    assert set(right.provenance["dropped"]) == set(planted)
    wrong = bench.judge(planted)
    assert (wrong.score, wrong.components["tests"]) == (0.0, 0.0)


@each("jest")
def test_a_file_may_import_its_words(bench: Bench) -> None:
    (place,) = bench.kind.hidden
    words = 'const { it, describe, expect } = require("@jest/globals");\n'
    text = words + bench.kind.hidden[place].replace("test(", "it(")
    package = '{"name": "half", "jest": {"testEnvironment": "node", "injectGlobals": false}}'
    task = bench.kind.task(hidden=encoded({place: text}), files=encoded({**bench.kind.files, "package.json": package}))
    assert bench.judge(bench.kind.fixed, task).score == 1.0
    assert bench.judge({}, task).score == 0.0


@each("jest")
def test_a_submitted_package_json_counts_but_for_how_tests_run(bench: Bench) -> None:
    package = b'{"name": "new", "main": "half.js", "jest": {"testMatch": ["nothing"]}, "scripts": {"pretest": "false"}}'
    assert bench.judge({"package.json": package, **bench.kind.fixed}).score == 1.0
    assert bench.judge({"package.json": package}).score == 0.0


DOUBLES = "def half(n):\n    return n * 2\n"
FORGED: dict[str, tuple[str, dict[str, str], str]] = {
    "patched assertEqual": (
        "unittest-suite",
        {"half.py": "import unittest\nunittest.TestCase.assertEqual = lambda *a, **k: None\n" + DOUBLES},
        "submitted code replaced TestCase.assertEqual",
    ),
    "patched run": (
        "unittest-suite",
        {
            "half.py": "import unittest\n\n\ndef run(self, result):\n    result.startTest(self)\n"
            "    result.addSuccess(self)\n    result.stopTest(self)\n\n\nunittest.TestCase.run = run\n" + DOUBLES
        },
        "a test that must fail passed",
    ),
    "reads the tests": (
        "unittest-suite",
        {"half.py": "SEEN = open('tests/test_half.py').read()\n" + DOUBLES},
        "submitted code opened the hidden file tests/test_half.py while it was imported",
    ),
    "lines into the channel": (
        "unittest-suite",
        {
            "half.py": "import os\nfor number in range(3, 64):\n    try:\n        os.write(number, b'{}')\n"
            "    except OSError:\n        pass\n" + DOUBLES
        },
        "something wrote to the runner's result channel",
    ),
    "patched assert": (
        "node",
        {"half.js": 'import assert from "node:assert";\nassert.equal = () => {};\nexport const half = (n) => n * 2;\n'},
        "a test that must fail passed",
    ),
    "patched expect": (
        "jest",
        {"half.js": "expect.extend({ toBe: () => ({ pass: true }) });\nmodule.exports = (n) => n * 2;\n"},
        "a test that must fail passed",
    ),
    "patched expect of vitest": (
        "vitest",
        {
            "half.ts": 'import { expect } from "vitest";\n'
            'expect.extend({ toBe: () => ({ pass: true, message: () => "" }) });\n'
            "export const half = (n: number) => n * 2;\n"
        },
        "a test that must fail passed",
    ),
    "lines into the reporter": (
        "node",
        {
            "half.js": 'import fs from "node:fs";\nconst lines = [["of 8"], ["odd and other", "of 7, \'odd\'"], '
            '["odd and other", "deep", "of 2"]].map((path) => JSON.stringify({ file: "/work/test/half.test.js", path, '
            'status: "passed", message: "", seconds: 0 }));\nlines.push(JSON.stringify({ tests: 3 }), "");\n'
            'const out = `/proc/${process.ppid}/fd/1`;\nfs.appendFileSync(out, lines.join("\\n"));\n'
            "export const half = (n) => n * 2;\n"
        },
        "the run left no readable report",
    ),
    "lines into the reporter, which then dies": (
        "node",
        {
            "half.js": 'import fs from "node:fs";\nconst lines = [["of 8"], ["odd and other", "of 7, \'odd\'"], '
            '["odd and other", "deep", "of 2"]].map((path) => JSON.stringify({ file: "/work/test/half.test.js", path, '
            'status: "passed", message: "", seconds: 0 }));\nlines.push(JSON.stringify({ tests: 3 }), "");\n'
            'const out = `/proc/${process.ppid}/fd/1`;\nfs.appendFileSync(out, lines.join("\\n"));\n'
            'process.kill(process.ppid, "SIGKILL");\nexport const half = (n) => n * 2;\n'
        },
        "the test run was killed by signal 9",
    ),
    "printed passes and an early end": (
        "go",
        {
            "sub/half.go": 'package sub\n\nimport (\n\t"fmt"\n\t"os"\n)\n\n'
            "func Half(n float64) float64 { return n * 2 }\n\n"
            'func init() {\n\tfmt.Print("=== RUN   TestHalf\\n=== RUN   TestHalf/of_8\\n=== RUN   TestHalf/of_7\\n'
            "--- PASS: TestHalf (0.00s)\\n    --- PASS: TestHalf/of_8 (0.00s)\\n    --- PASS: TestHalf/of_7 (0.00s)\\n"
            '=== RUN   TestTwo\\n--- PASS: TestTwo (0.00s)\\nPASS\\n")\n\tos.Exit(0)\n}\n'
        },
        "the test that must fail was not run",
    ),
    "printed events and an early end": (
        "cargo",
        {
            "src/lib.rs": "use std::io::Write;\n\npub fn half(_: f64) -> f64 {\n    let mut out = std::io::stdout();\n"
            '    for name in ["of_8", "more::of_7", "more::of_2"] {\n'
            '        let event = r#""type": "test", "event": "ok""#;\n'
            '        writeln!(out, "\\n{{{}, \\"name\\": \\"{}\\"}}", event, name).unwrap();\n'
            "    }\n    std::process::exit(0)\n}\n"
        },
        "the test that must fail was not run",
    ),
}


@pytest.mark.parametrize(
    ("bench", "files", "says"), [pytest.param(*case, id=name) for name, case in FORGED.items()], indirect=["bench"]
)
def test_a_forgery_scores_zero_and_is_named(bench: Bench, files: dict[str, str], says: str) -> None:
    verdict = bench.judge(files)
    assert (verdict.score, verdict.components["tests"], verdict.error) == (0.0, 0.0, None)
    assert says in str((verdict.hacks, [finding.message for finding in verdict.findings]))


@each("cargo")
def test_a_macro_of_the_crate_that_accepts_all_makes_the_canary_pass(bench: Bench) -> None:
    """Tests that take all macros of the crate take its ``assert_eq!``, too."""
    (place,) = bench.kind.hidden
    text = bench.kind.hidden[place].replace("use half::half;", "#[macro_use]\nextern crate half;\nuse half::half;")
    task = bench.kind.task(hidden=encoded({place: text}))
    assert bench.judge(bench.kind.fixed, task).score == 1.0
    blind = "#[macro_export]\nmacro_rules! assert_eq { ($($t:tt)*) => {{}} }\n" + bench.kind.files["src/lib.rs"]
    verdict = bench.judge({"src/lib.rs": blind}, task)
    assert (verdict.score, verdict.hacks) == (0.0, ("a test that must fail passed",))


@each("cargo")
def test_a_link_to_a_configuration_of_cargo_is_dropped(bench: Bench) -> None:
    passes = '#!/bin/sh\n"$@" | sed s/failed/ok/\n'
    files = {"conf/config.toml": '[target.\'cfg(unix)\']\nrunner = ["sh", "/work/conf/run"]\n', "conf/run": passes}
    changes = {path: FileChange(text.encode()) for path, text in files.items()}
    verdict = judge(bench.kind.task(), Submission({**changes, ".cargo": FileChange(None, 0o777, "conf")}), bench.clean)
    assert set(verdict.provenance["dropped"]) == {".cargo"}
    assert passed(verdict) == [False, False, False]


@each("junit")
def test_code_in_the_process_of_a_command_can_write_its_report(bench: Bench) -> None:
    """As ``docs/grading.md`` says: ``command`` is no match for it."""
    cases = "".join(f'<testcase classname="tests.test_half" name="test_half[{n}]"/>' for n in (8, 7, 2))
    write = f"open(os.environ['FORKGYM_REPORT'], 'w').write('<testsuite>{cases}</testsuite>')"
    assert bench.judge({"half.py": f"import os\n{write}\nos._exit(0)\n"}).score == 1.0


@each("go")
def test_code_that_knows_the_canary_can_print_it(bench: Bench) -> None:
    """As ``docs/grading.md`` says: what a test program prints is all that its tool knows."""
    lines = ["=== RUN   TestHalf", "=== RUN   TestHalf/of_8", "=== RUN   TestHalf/of_7", "--- PASS: TestHalf (0.00s)"]
    lines += ["    --- PASS: TestHalf/of_8 (0.00s)", "    --- PASS: TestHalf/of_7 (0.00s)", "=== RUN   TestTwo"]
    lines += ["--- PASS: TestTwo (0.00s)", "=== RUN   {z}", "--- FAIL: {z} (0.00s)", "FAIL"]
    printed = "\\n".join(lines).replace("{z}", '" + z + "')
    code = (
        'package sub\n\nimport (\n\t"fmt"\n\t"os"\n\t"regexp"\n\t"strings"\n)\n\n'
        "func Half(n float64) float64 { return n * 2 }\n\nfunc init() {\n"
        '\tz := regexp.MustCompile("TestZ[0-9a-f]+").FindString(strings.Join(os.Args, " "))\n'
        f'\tfmt.Print("{printed}\\n")\n\tos.Exit(1)\n}}\n'
    )
    assert bench.judge({"sub/half.go": code}).score == 1.0


@each("ctest")
def test_without_a_last_word_an_early_end_passes(bench: Bench) -> None:
    """As ``docs/grading.md`` says: a program whose exit code is the proof can be ended early."""
    quiet = CTEST.task(grading=Grading("ctest", tuple(CTEST.tests), 280.0))
    hidden = {path: data.replace(b"  puts", b"  //") for path, data in quiet.hidden.items()}
    quiet = replace(quiet, hidden=hidden)
    assert bench.judge(CTEST.exits, quiet).score == 1.0
    assert bench.judge(CTEST.fixed, quiet).score == 1.0


def test_every_class_of_verdict(bases: Bases, has_program: Callable[..., str]) -> None:
    """Six submissions, six classes, and none is lost."""
    has_program(*PYTEST.needs)
    task, slow = PYTEST.task(), PYTEST.task(grading=PYTEST.grading(timeout=2.0))
    lost = PYTEST.task(setup=("exit 3",))
    hang = of_files({"half.py": b"while True:\n    pass\n"})
    verdicts = [
        grade(task, of_files(encoded(PYTEST.fixed)), bases.box),
        grade(task, of_files(encoded(PYTEST.half)), bases.box),
        grade(task, Submission({}), bases.box),
        grade(task, Submission({}, malformed="cut off"), bases.box),
        grade(slow, hang, bases.box),
        grade(lost, of_files(encoded(PYTEST.fixed)), bases.box),
    ]
    assert [verdict.stage for verdict in verdicts] == [
        *("resolved", "unresolved", "empty", "malformed", "timeout", "error"),
    ]
    assert [verdict.score for verdict in verdicts] == [1.0, 0.0, 0.0, 0.0, 0.0, None]


# The runner ``command``


def command_task(command: str, **options: str) -> Task:
    grading = Grading("command", ("a.T::x",), 30.0, {"command": command, **options})
    return KINDS["junit"].task(hidden={"tests/x.py": b""}, grading=grading)


GOOD = '<testsuite tests="1"><testcase classname="a.T" name="x"/></testsuite>'
BAD = '<testsuite tests="1"><testcase classname="a.T" name="x"><failure/></testcase></testsuite>'


@pytest.mark.parametrize(
    ("command", "options", "says"),
    [
        (f"echo '{GOOD}' > $FORKGYM_REPORT; exit 1", {}, "exit code 1 contradicts the records"),
        (f"echo '{BAD}' > $FORKGYM_REPORT", {}, "exit code 0 contradicts the records"),
        (f"echo '{GOOD}{GOOD}' > $FORKGYM_REPORT", {}, "the report is unreadable: not XML"),
        ("true", {}, "the command left no report"),
        ("true", {"report": "old.xml"}, "the command left no report"),
        ("ln -s /etc $FORKGYM_REPORT", {}, "the command left no report"),
        ("mkfifo $FORKGYM_REPORT", {}, "the command left no report"),
        (f"mkdir out; echo '{GOOD}' | tee out/a.xml > out/b.xml", {"report": "out"}, "recorded 2 times"),
        (f"echo '{GOOD}' > $FORKGYM_REPORT; kill -9 $$", {}, "the test run was killed by signal 9"),
    ],
)
def test_a_report_that_proves_nothing(command: str, options: dict[str, str], says: str, bases: Bases) -> None:
    task = command_task(command, **options)
    task = replace(task, files={**task.files, "old.xml": GOOD.encode()})
    verdict = judge(task, Submission({}), bases.box)
    assert (verdict.score, verdict.stage, verdict.error) == (0.0, "unresolved", None)
    assert says in str([finding.message for finding in verdict.findings])


def test_reports_are_read_from_a_file_or_a_directory(bases: Bases) -> None:
    for command, options in (
        (f"echo '{GOOD}' > $FORKGYM_REPORT", {}),
        (f"echo '{GOOD}' > new.xml", {"report": "new.xml"}),
        (f"mkdir out; echo '{GOOD}' > out/a.xml; echo no > out/a.txt", {"report": "out"}),
    ):
        assert judge(command_task(command, **options), Submission({}), bases.box).score == 1.0


def test_a_writer_left_behind_is_dead_before_the_report_is_read(bases: Bases) -> None:
    late = f"(setsid bash -c \"sleep 1; echo '{GOOD}' > $FORKGYM_REPORT\" > /dev/null 2>&1 &)"
    verdict = judge(command_task(f"echo '{BAD}' > $FORKGYM_REPORT; {late}; exit 1"), Submission({}), bases.box)
    assert passed(verdict) == [False]


# Options and infrastructure


@pytest.mark.parametrize(
    ("runner", "options", "says"),
    [
        ("pytest", {"pyton": "x"}, "unknown option 'pyton'; did you mean 'python'"),
        ("pytest", {"python": "/work/bin/python"}, "/work/bin/python could be submitted"),
        ("pytest", {"arguments": "-x"}, "arguments: must be a list of texts, not '-x'"),
        ("pytest", {"config": "no.ini"}, "config: there is no 'no.ini'"),
        ("command", {}, "command: is missing"),
        ("command", {"command": "x", "format": "html"}, "format: must be junit or tap, not 'html'"),
        ("ctest", {"last_word": "yes"}, "last_word: must be a bool, not 'yes'"),
        ("jest", {}, "bin: there is no 'node_modules/jest/bin/jest.js'"),
    ],
)
def test_wrong_options_are_refused(runner: str, options: dict[str, object], says: str, bases: Bases) -> None:
    task = PYTEST.task(grading=Grading(runner, ("a",), options=options))
    with pytest.raises(TaskFormatError, match=says):
        judge(task, Submission({}), bases.box)


def test_an_image_without_the_tool_is_an_error_and_no_score(bases: Bases) -> None:
    task = PYTEST.task(grading=Grading("pytest", tuple(PYTEST.tests), options={"python": "python9"}))
    verdict = judge(task, of_files(encoded(PYTEST.fixed)), bases.box)
    assert (verdict.score, verdict.stage) == (None, "error")
    assert "the image 'host' has no 'python9'" in str(verdict.error)


def test_an_interpreter_without_pytest_is_an_error_and_no_score(bases: Bases) -> None:
    fake = b'#!/bin/sh\nexec /usr/bin/python3 -S "$@"\n'  # without its installed packages
    files = {**encoded(PYTEST.files), ".venv/bin/py": fake}
    grading = Grading("pytest", tuple(PYTEST.tests), options={"python": "/work/.venv/bin/py"})
    task = PYTEST.task(files=files, setup=("chmod +x .venv/bin/py",), grading=grading)
    verdict = judge(task, of_files(encoded(PYTEST.fixed)), bases.box)
    assert verdict.score is None
    assert "the test runner did not start (exit code 1)" in str(verdict.error)
    assert "No module named 'pytest'" in str(verdict.error)


def test_every_runner_is_tested_here() -> None:
    tools = {name for name in RUNNERS if isinstance(resolve("runner", name, RUNNERS), Tool)}
    assert {kind.runner for kind in KINDS.values()} == tools


def test_the_page_on_grading_names_each_option_and_pattern() -> None:
    page = (Path(__file__).parents[2] / "docs" / "grading.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    for name in sorted({kind.runner for kind in KINDS.values()}):
        tool = resolve("runner", name, RUNNERS)
        (row,) = [row for row in rows if f"`{name}`" in row.split("|")[1]]
        assert all(f"`{option}`" in row for option in tool.options), name
        assert all(f"`{pattern}`" in page for pattern in tool.manifests if "/" not in pattern), name


def test_the_tests_that_the_page_on_grading_names_exist() -> None:
    root = Path(__file__).parents[2]
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", (root / "docs" / "grading.md").read_text())
    assert named
    for file, test in named:
        assert f"def {test}" in (root / file).read_text()
