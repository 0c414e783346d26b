"""The runner ``pytest``: what counts as a pass, which configuration counts, and what a run may not be spoilt by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from forkgym.sandboxes.base import Limits
from forkgym.tasks.base import Grading, Task, Verdict
from forkgym.tasks.grading import judge
from forkgym.tasks.submission import of_files
from forkgym.tasks.workspace import Bases

SOURCE = b"def half(n):\n    return n / 2\n"


@pytest.fixture
def run(make: Callable[..., Task], bases: Bases, sandbox_pytest: str) -> Callable[..., Verdict]:
    """``run(hidden, *ids)``: the verdict for the solution; ids without a file stand in tests/test_h.py."""

    def ask(
        hidden: str | dict[str, str],
        *ids: str,
        files: dict[str, str] | None = None,
        submitted: dict[str, str] | None = None,
        **more: Any,
    ) -> Verdict:
        contents = hidden if isinstance(hidden, dict) else {"tests/test_h.py": hidden}
        tests = tuple(test if ".py" in test else f"tests/test_h.py::{test}" for test in ids)
        task = make(
            files={path: text.encode() for path, text in (files or {}).items()} | {"half.py": b"half = None\n"},
            hidden={path: text.encode() for path, text in contents.items()},
            grading=Grading("pytest", tests, 60.0, more.pop("options", {})),
            **more,
        )
        change = {"half.py": SOURCE} | {path: text.encode() for path, text in (submitted or {}).items()}
        return judge(task, of_files(change), bases.box)

    return ask


Run = Callable[..., Verdict]


def told(verdict: Verdict) -> dict[str, tuple[bool, str]]:
    return {finding.id.partition("::")[2]: (finding.passed, finding.message) for finding in verdict.findings}


OUTCOMES = """\
import unittest

import pytest

from half import half


def test_pass():
    assert half(8) == 4

def test_fail():
    assert half(8) == 5

def test_error():
    half(None)

@pytest.mark.skip(reason="later")
def test_skip():
    pass

@pytest.mark.xfail(reason="known")
def test_xfail():
    assert False

@pytest.mark.xfail
def test_xpass():
    pass

@pytest.mark.xfail(strict=True)
def test_strict():
    pass

@pytest.fixture
def broken():
    raise OSError("no such thing")

@pytest.fixture
def untidy():
    yield
    raise OSError("left behind")

def test_setup(broken):
    pass

def test_teardown(untidy):
    pass

class TestC:
    class TestInner:
        def test_method(self):
            assert half(2) == 1

class TestU(unittest.TestCase):
    def test_sub(self):
        for n in (2, 3):
            with self.subTest(n=n):
                self.assertEqual(half(n), 1)

    @unittest.expectedFailure
    def test_expected(self):
        self.fail()
"""


def test_only_a_plain_pass_is_a_pass(run: Run) -> None:
    expected = {
        "test_pass": (True, ""),
        "TestC::TestInner::test_method": (True, ""),
        "test_fail": (False, "assert 4.0 == 5\n +  where 4.0 = half(8) (line 12)"),
        "test_skip": (False, "skipped: Skipped: later"),
        "test_xfail": (False, "marked as an expected failure"),
        "test_xpass": (False, "marked as an expected failure, and passed"),
        "test_strict": (False, "[XPASS(strict)] "),
        "test_setup": (False, "setup: OSError: no such thing (line 35)"),
        "test_teardown": (False, "teardown: OSError: left behind (line 40)"),
        "TestU::test_sub": (False, "AssertionError: 1.5 != 1 (line 57)"),
        "TestU::test_expected": (False, "marked as an expected failure"),
        "test_absent": (False, "not run"),
        "TestC::test_absent": (False, "not run"),
        "TestC": (False, "not run"),
    }
    verdict = run(OUTCOMES, *expected, "test_error")
    found = told(verdict)
    passed, message = found.pop("test_error")
    assert not passed
    assert message.startswith("TypeError: unsupported operand")
    assert found == expected
    assert (verdict.hacks, verdict.error) == ((), None)
    assert verdict.components["tests"] == pytest.approx(2 / 15)
    assert set(verdict.provenance["test_seconds"]) == {
        finding.id for finding in verdict.findings if finding.message != "not run"
    }


PARAMETERS = """\
import pytest

IDS = ["km is 'valid'", "a::b[c]", "n\\u00e4h", "x/y.py::z", "tab\\there", "-k", "@file"]


@pytest.mark.parametrize("wrong", [False, True], ids=["right", "wrong"])
@pytest.mark.parametrize("value", IDS)
def test_p(value, wrong):
    print("FAILED tests/test_h.py::test_p[right]\\nPASSED tests/test_h.py::test_p[wrong]")
    assert not wrong
"""
# As pytest shows them, which escapes what is no ASCII.
SHOWN = ["km is 'valid'", "a::b[c]", "n\\xe4h", "x/y.py::z", "tab\\there", "-k", "@file"]


def test_ids_with_any_character_are_kept_apart(run: Run) -> None:
    """B01, B03: a verdict belongs to its own full id, whatever is printed between."""
    ids = [f"test_p[{name}-{way}]" for name in SHOWN for way in ("right", "wrong")]
    verdict = run(PARAMETERS, *(f"tests/test_h.py::{test}" for test in ids))
    assert [finding.passed for finding in verdict.findings] == [True, False] * len(SHOWN)


def test_a_module_that_cannot_be_imported_spoils_no_other(run: Run) -> None:
    hidden = {
        "tests/test_h.py": "from half import half\n\n\ndef test_a():\n    assert half(8) == 4\n",
        "tests/test_bad.py": "import no_such_module\n\n\ndef test_b():\n    pass\n",
        "tests/test_syntax.py": "def test_c(:\n",
    }
    verdict = run(
        hidden, "test_a", "tests/test_bad.py::test_b", "tests/test_syntax.py::test_c", "tests/gone.py::test_d"
    )
    a, b, c, d = verdict.findings
    assert a.passed
    assert b.message.startswith("not collected: ")
    assert "No module named 'no_such_module'" in b.message
    assert "SyntaxError" in c.message
    assert d.message == "not run"
    assert verdict.components["tests"] == 0.25


CONFIGURED = """\
import pytest


def test_marked(request):
    assert request.config.getini("markers")[0].startswith("mine")

def check_named():
    pass
"""
CONFIGURATION = {
    "pytest.ini": "[pytest]\nmarkers = mine\npython_functions = test_* check_*\n",
    "pyproject.toml": '[tool.pytest.ini_options]\nmarkers = ["mine"]\npython_functions = ["test_*", "check_*"]\n',
    "tox.ini": "[tox]\n[pytest]\nmarkers = mine\npython_functions = test_* check_*\n",
    "setup.cfg": "[tool:pytest]\nmarkers = mine\npython_functions = test_* check_*\n",
}


@pytest.mark.parametrize("name", CONFIGURATION)
def test_the_configuration_of_the_base_counts(name: str, run: Run) -> None:
    ids = ("test_marked", "check_named")
    other = {name: "", "pytest.ini": "[pytest]\n", "pyproject.toml": "[tool.pytest.ini_options]\n"}
    assert run(CONFIGURED, *ids, files={name: CONFIGURATION[name]}).score == 1.0
    assert run(CONFIGURED, *ids, files={name: CONFIGURATION[name]}, submitted=other).score == 1.0
    assert run(CONFIGURED, *ids, submitted={name: CONFIGURATION[name]}).score == 0.0


def test_hidden_configuration_comes_before_that_of_the_base(run: Run) -> None:
    hidden = {"tests/test_h.py": CONFIGURED, "pytest.ini": CONFIGURATION["pytest.ini"]}
    base = {"pyproject.toml": "[tool.pytest.ini_options]\naddopts = '--no-such-option'\n"}
    assert run(hidden, "test_marked", "check_named", files=base).score == 1.0


def test_the_config_option_names_another_file(run: Run) -> None:
    files = {"ci.ini": CONFIGURATION["pytest.ini"], "pytest.ini": "[pytest]\n"}
    options = {"config": "ci.ini"}
    assert run(CONFIGURED, "test_marked", "check_named", files=files, options=options).score == 1.0


@pytest.mark.parametrize("addopts", ["-x", "--maxfail=1", "-n 2", "--lf", "-q -q", "--durations=3", "-W error"])
def test_options_of_the_base_neither_stop_nor_split_the_run(
    addopts: str, run: Run, has_program: Callable[..., str]
) -> None:
    if "-n" in addopts:
        has_program("python3", "-c", "import xdist")
    source = "def test_a():\n    assert 0\n\ndef test_b():\n    pass\n\ndef test_c():\n    pass\n"
    verdict = run(source, "test_a", "test_b", "test_c", files={"tox.ini": f"[pytest]\naddopts = {addopts}\n"})
    assert [finding.passed for finding in verdict.findings] == [False, True, True]


def test_an_option_that_the_image_lacks_is_said(run: Run) -> None:
    verdict = run("def test_a():\n    pass\n", "test_a", files={"tox.ini": "[pytest]\naddopts = --no-such-option\n"})
    assert verdict.score == 0.0
    assert "unrecognized arguments: --no-such-option" in verdict.provenance["notes"][0]


def test_the_conftest_of_the_base_and_a_hidden_one_are_used(run: Run) -> None:
    one = "import pytest\n\n\n@pytest.fixture\ndef one():\n    return 1\n"
    two = "import pytest\n\n\n@pytest.fixture\ndef two(one):\n    return one + 1\n"
    hidden = {"tests/test_h.py": "def test_two(two):\n    assert two == 2\n", "tests/conftest.py": two}
    assert run(hidden, "test_two", files={"conftest.py": one, "tests/conftest.py": "raise SystemExit\n"}).score == 1.0


def test_path_names_where_sources_stand_for_tests_and_their_programs(run: Run) -> None:
    source = """\
import subprocess, sys
import inner

def test_here():
    assert inner.X == 1

def test_elsewhere():
    code = "import inner; print(inner.X)"
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True).stdout == "1\\n"
"""
    files = {"src/inner.py": "X = 1\n"}
    assert run(source, "test_here", "test_elsewhere", files=files, options={"path": ["src"]}).score == 1.0
    assert run(source, "test_here", "test_elsewhere", files=files).score == 0.0


def test_old_bytecode_is_not_taken_for_the_submission(run: Run) -> None:
    """Bytecode that Python does not compare with its source stands for any that looks current by chance."""
    compiled = "python3 -m compileall -q --invalidation-mode unchecked-hash half.py"
    source = "from half import half\n\n\ndef test_a():\n    assert half(8) == 4\n"
    assert run(source, "test_a", setup=(compiled,)).score == 1.0


def test_an_executable_hook_of_the_sandbox_user_is_not_on_the_path(run: Run) -> None:
    source = "import shutil\n\n\ndef test_a():\n    assert shutil.which('git').startswith(('/usr/', '/bin/'))\n"
    assert (
        run(source, "test_a", submitted={"git": "#!/bin/sh\nexit 0\n", "bin/git": "#!/bin/sh\nexit 0\n"}).score == 1.0
    )


def test_a_run_without_memory_is_said(run: Run) -> None:
    source = "from half import grow\n\n\ndef test_a():\n    grow()\n"
    grow = "def grow():\n    kept = []\n    while True:\n        kept.append(bytearray(1 << 24))\n"
    verdict = run(source, "test_a", submitted={"half.py": grow}, limits=Limits(memory=256 << 20))
    assert (verdict.score, verdict.components["tests"], verdict.error) == (0.0, 0.0, None)
