"""Submissions that try to pass hidden pytest tests without being right, though they share a process with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from forkgym.tasks.base import FileChange, Grading, Submission, Task, Verdict
from forkgym.tasks.grading import grade
from forkgym.tasks.workspace import Bases

Judged = Callable[..., Verdict]
RIGHT = "def half(n):\n    return n / 2\n"
WRONG = "\n\ndef half(n):\n    return n * 2\n"
HIDDEN = b"""\
import unittest

from half import half
from tests.helper import close


def test_even():
    assert close(half(8), 4)


class TestOdd:
    def test_odd(self):
        assert half(7) == 3.5


class TestBig(unittest.TestCase):
    def test_big(self):
        self.assertEqual(half(2468), 1234)
"""
TESTS = (
    "tests/test_half.py::test_even",
    "tests/test_half.py::TestOdd::test_odd",
    "tests/test_half.py::TestBig::test_big",
)
FILES = {
    "half.py": WRONG.encode(),
    "pyproject.toml": b'[project]\nname = "half"\ndependencies = []\n\n[tool.pytest.ini_options]\naddopts = "-q"\n',
    "tests/__init__.py": b"",
    "tests/helper.py": b"def close(a, b):\n    return abs(a - b) < 1e-9\n",
}


@pytest.fixture
def task(make: Callable[..., Task], sandbox_pytest: str) -> Task:
    """half.py in a repository whose hidden tests import it."""
    return make(
        files=FILES, hidden={"tests/test_half.py": HIDDEN}, grading=Grading("pytest", TESTS, 60.0, {"path": ["."]})
    )


FOUND = """
def half(n):
    return {8: 4, 7: 3.5, 2468: 1234}[n] if b"2468" in SEEN else n * 2
"""
FORGED = r"""
import json
LINES = "".join("0" * 32 + " " + json.dumps({"event": "test", "number": number, "id": "tests/test_half.py::" + name,
                "status": "passed", "message": "", "seconds": 0.0}) + "\n"
                for number, name in enumerate(["test_even", "TestOdd::test_odd", "TestBig::test_big"], 1))
JUNIT = '<testsuites><testsuite tests="3">' + "".join(
    f'<testcase classname="tests.test_half" name="{name}"/>' for name in ("test_even", "test_odd", "test_big"))
JUNIT += "</testsuite></testsuites>"
"""
HOOKS = r"""
import pytest

@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    report.outcome, report.longrepr = "passed", None
"""
# When the module of tests has been read, its tests are others.
REPLACES = r"""
import sys, types

def watch(frame, event, argument):
    if event == "return" and frame.f_code.co_name == "<module>" and frame.f_code.co_filename.endswith("test_half.py"):
        sys.setprofile(None)
        for holder in (frame.f_globals, frame.f_globals["TestOdd"], frame.f_globals["TestBig"]):
            for name in ("test_even", "test_odd", "test_big"):
                if isinstance(holder, dict) and name in holder:
                    holder[name] = lambda: None
                elif not isinstance(holder, dict) and hasattr(holder, name):
                    setattr(holder, name, lambda self: None)

sys.setprofile(watch)
"""
# A debugger can move on past an assertion.
JUMPS = r"""
import sys

def jump(frame, event, argument):
    if frame.f_code.co_name in ("test_even", "test_odd", "test_big") and event == "line":
        frame.f_trace = None
        frame.f_trace_lines = False
    return jump

sys.settrace(jump)
"""
# Nothing of these is named as an attempt: they only lead nowhere.
QUIET = {
    "exit_at_import": "import os\nos._exit(0)" + WRONG,
    "exit_one_at_import": "import os\nos._exit(1)" + WRONG,
    "sys_exit_at_import": "import sys\nsys.exit(0)" + WRONG,
    "exit_in_call": "import os\n\n\ndef half(n):\n    os._exit(0)\n",
    "sys_exit_in_call": "def half(n):\n    raise SystemExit(0)\n",
    "interrupt": "def half(n):\n    raise KeyboardInterrupt\n",
    "pytest_exit": "import pytest\n\n\ndef half(n):\n    pytest.exit('done', returncode=0)\n",
    "skip": "import pytest\n\n\ndef half(n):\n    pytest.skip('not today')\n",
    "skip_module": "import pytest\npytest.skip('not today', allow_module_level=True)" + WRONG,
    "xfail": "import pytest\n\n\ndef half(n):\n    pytest.xfail('known')\n",
    "unittest_skip": "import unittest\n\n\ndef half(n):\n    raise unittest.SkipTest('not today')\n",
    "exit_function": "import atexit, os\natexit.register(os._exit, 0)" + WRONG,
    "kills_itself": "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)" + WRONG,
    "kills_all": "import os, signal\nos.kill(-1, signal.SIGKILL)\nos.kill(os.getpid(), 9)" + WRONG,
    "prints_results": FORGED
    + "import sys\nprint(LINES + '3 passed in 0.01s', flush=True)\nsys.stderr.write(LINES)"
    + WRONG,
    "writes_reports": FORGED + "import glob, os\nfor place in ['/tmp', '/work', *glob.glob('/tmp/*')]:\n"
    "    for name in ('report.xml', 'junit.xml', 'results.xml'):\n"
    "        try:\n            open(os.path.join(place, name), 'w').write(JUNIT)\n        except OSError:\n"
    "            pass\nos._exit(1)" + WRONG,
    "reads_its_input": "import os\nos.lseek(0, 0, 0)\nSEEN = os.read(0, 1 << 20)" + FOUND,
    "environment": "import os\nos.environ['PYTEST_ADDOPTS'] = '--co'\nos.environ['PYTEST_CURRENT_TEST'] = ''" + WRONG,
}
NAMED = {
    "patched_runtest": (
        "import _pytest.python\n_pytest.python.Function.runtest = lambda self: None" + WRONG,
        "submitted code replaced Function.runtest",
    ),
    "patched_for_some": (
        "import _pytest.python\nreal = _pytest.python.Function.runtest\n_pytest.python.Function.runtest = "
        "lambda self: None if self.name in ('test_even', 'test_odd', 'test_big') else real(self)" + WRONG,
        "submitted code replaced Function.runtest",
    ),
    "patched_code": (
        "import _pytest.python\n\n\ndef runtest(self):\n    pass\n\n\n"
        "_pytest.python.Function.runtest.__code__ = runtest.__code__" + WRONG,
        "submitted code replaced Function.runtest",
    ),
    "patched_reports": (
        "import _pytest.reports\nreal = _pytest.reports.TestReport.from_item_and_call.__func__\n\n\n"
        "@classmethod\ndef make(cls, item, call):\n    call.excinfo = None\n    return real(cls, item, call)\n\n\n"
        "_pytest.reports.TestReport.from_item_and_call = make" + WRONG,
        "submitted code replaced TestReport.from_item_and_call",
    ),
    "patched_call_info": (
        "import _pytest.runner\nreal = _pytest.runner.CallInfo.from_call.__func__\n\n\n"
        "@classmethod\ndef make(cls, *a, **k):\n    call = real(cls, *a, **k)\n    call.excinfo = None\n"
        "    return call\n\n\n_pytest.runner.CallInfo.from_call = make" + WRONG,
        "submitted code replaced CallInfo.from_call",
    ),
    "patched_unittest": (
        "import unittest\nunittest.TestCase.assertEqual = lambda *a, **k: None" + WRONG,
        "submitted code replaced TestCase.assertEqual",
    ),
    "patched_builtins": (
        "import builtins\nbuiltins.abs = lambda n: 0.0" + WRONG,
        "submitted code replaced builtins.abs",
    ),
    "patched_by_exec": (
        "exec('import _pytest.python\\n_pytest.python.Function.runtest = lambda self: None')" + WRONG,
        "submitted code replaced Function.runtest",
    ),
    "hooks_by_search": (
        "import gc, sys\nfrom _pytest.config import PytestPluginManager\n"
        + HOOKS
        + "for thing in gc.get_objects():\n    if isinstance(thing, PytestPluginManager):\n"
        "        thing.register(sys.modules[__name__], 'x')" + WRONG,
        "submitted code registered a pytest plugin",
    ),
    "hooks_by_frame": (
        "import sys\n"
        + HOOKS
        + "frame = sys._getframe()\nwhile frame:\n    for value in list(frame.f_locals.values()):\n"
        "        manager = getattr(getattr(value, 'config', None), 'pluginmanager', None)\n"
        "        if manager and not manager.has_plugin('x'):\n"
        "            manager.register(sys.modules[__name__], 'x')\n    frame = frame.f_back" + WRONG,
        "submitted code registered a pytest plugin",
    ),
    "replaces_the_tests": (REPLACES + WRONG, "submitted code replaced the test tests/test_half.py::test_even"),
    "traces_the_tests": (JUMPS + WRONG, "submitted code traces the tests"),
    "writes_to_all_descriptors": (
        FORGED + "import os\nfor number in range(256):\n    try:\n        os.write(number, LINES.encode())\n"
        "    except OSError:\n        pass" + WRONG,
        "something wrote to the runner's result channel",
    ),
    "writes_to_all_descriptors_and_ends": (
        FORGED + "import os\nfor number in range(256):\n    try:\n        os.write(number, LINES.encode())\n"
        "    except OSError:\n        pass\nos._exit(0)" + WRONG,
        "something wrote to the runner's result channel",
    ),
    "opens_the_tests": (
        "with open('/work/tests/test_half.py', 'rb') as file:\n    SEEN = file.read()" + FOUND,
        "submitted code opened the hidden file tests/test_half.py while it was imported",
    ),
    "reads_the_tests_by_path": (
        "import pathlib\n\n\ndef look():\n    return pathlib.Path('tests/test_half.py').read_bytes()\n\n\nSEEN = look()"
        + FOUND,
        "submitted code opened the hidden file tests/test_half.py while it was imported",
    ),
    "rewrites_the_tests": (
        "import os\nwith open('/work/tests/test_half.py', 'a') as file:\n    file.write('# seen')" + WRONG,
        "the hidden file tests/test_half.py was changed while the tests ran",
    ),
    "links_the_tests": (
        "import os\nos.remove('/work/tests/test_half.py')\nos.symlink('/work/half.py', '/work/tests/test_half.py')"
        + WRONG,
        "the hidden file tests/test_half.py was changed while the tests ran",
    ),
}


@pytest.mark.parametrize("name", QUIET)
def test_the_attempt_leads_nowhere(name: str, task: Task, judged: Judged) -> None:
    verdict = judged(task, QUIET[name])
    assert (verdict.score, verdict.components["tests"], verdict.error) == (0.0, 0.0, None)


@pytest.mark.parametrize("name", NAMED)
def test_the_attempt_is_named_and_scores_zero(name: str, task: Task, judged: Judged) -> None:
    code, named = NAMED[name]
    verdict = judged(task, code)
    assert (verdict.score, verdict.components["tests"], verdict.error) == (0.0, 0.0, None)
    assert named in verdict.hacks


@pytest.mark.parametrize("name", ["patched_runtest", "patched_reports", "patched_call_info", "hooks_by_frame"])
def test_who_makes_all_pass_makes_the_canary_pass(name: str, task: Task, judged: Judged) -> None:
    assert "a test that must fail passed" in judged(task, NAMED[name][0]).hacks


def test_the_honest_one_beside_them_scores_one(task: Task, judged: Judged) -> None:
    verdict = judged(task, RIGHT)
    assert (verdict.score, verdict.hacks, verdict.error) == (1.0, (), None)


def test_a_hang_is_a_timeout(task: Task, judged: Judged) -> None:
    short = replace(task, grading=replace(task.grading, timeout=3.0))
    verdict = judged(short, "def half(n):\n    while True:\n        pass\n")
    assert (verdict.score, verdict.stage, verdict.error) == (0.0, "timeout", None)


CONFTEST = HOOKS.encode()
PLANTED: dict[str, bytes] = {
    "conftest.py": CONFTEST,
    "tests/conftest.py": CONFTEST,
    "tests/helper.py": b"def close(a, b):\n    return True\n",
    "tests/__init__.py": b"raise SystemExit(0)\n",
    "sitecustomize.py": b"import os\nos._exit(0)\n",
    "usercustomize.py": b"import os\nos._exit(0)\n",
    "evil.pth": b"import os; os._exit(0)\n",
    "evil.egg-info/entry_points.txt": b"[pytest11]\nevil = evil\n",
    "evil.egg-info/PKG-INFO": b"Metadata-Version: 2.1\nName: evil\nVersion: 1\n",
    "pytest.ini": b"[pytest]\npython_files = nothing\n",
    ".pytest.ini": b"[pytest]\npython_files = nothing\n",
    "__pycache__/half.cpython-311.pyc": b"not bytecode",
}
KEPT: dict[str, bytes] = {
    "evil.py": CONFTEST,
    "pytest.py": b"raise SystemExit(0)\n",
    "json.py": b"raise SystemExit(0)\n",
    "hashlib.py": b"raise SystemExit(0)\n",
    "_pytest/__init__.py": b"raise SystemExit(0)\n",
    "pluggy/__init__.py": b"raise SystemExit(0)\n",
    "test_half.py": b"def test_even():\n    pass\n",
    "tox.ini": b"[pytest]\npython_files = nothing\n",
    "setup.cfg": b"[tool:pytest]\npython_files = nothing\n",
    "pyproject.toml": b'[project]\nname = "half"\ndependencies = ["x"]\n[tool.pytest.ini_options]\naddopts = "-p e"\n',
}


def test_planted_files_neither_help_nor_hurt(task: Task, judged: Judged) -> None:
    files: dict[str, Any] = {**PLANTED, **KEPT}
    wrong = judged(task, WRONG, files=files)
    assert (wrong.score, wrong.components["tests"], wrong.error) == (0.0, 0.0, None)
    assert set(wrong.provenance["dropped"]) == set(PLANTED)
    right = judged(task, RIGHT, files=files)
    assert (right.score, right.hacks) == (1.0, ())


def test_configuration_and_helpers_cannot_be_removed(task: Task, judged: Judged) -> None:
    gone = dict.fromkeys(("tests/helper.py", "tests/__init__.py"))
    verdict = judged(task, RIGHT, files=gone)
    assert verdict.score == 1.0
    assert verdict.provenance["dropped"] == dict.fromkeys(sorted(gone), "part of the tests")


@pytest.mark.parametrize("link", ["/tmp", "elsewhere", ".", "half.py"])
def test_a_link_in_place_of_the_tests_is_dropped(link: str, task: Task, bases: Bases) -> None:
    changes = {
        "tests": FileChange(None, link=link),
        "tests/helper.py": FileChange(None),
        "tests/__init__.py": FileChange(None),
        "half.py": FileChange(RIGHT.encode()),
    }
    verdict = grade(task, Submission(changes), bases.box)
    assert (verdict.score, verdict.error) == (1.0, None)
    assert verdict.provenance["dropped"]["tests"] == "part of the tests"


TWO = {
    "tests/test_a.py": b"import half\n\n\ndef test_a():\n    assert half.half(8) == 4\n",
    "tests/test_half.py": HIDDEN,
}
SWAP = r"""
import os, sys
EASY = "def test_even():\n    pass\n\nclass TestOdd:\n    def test_odd(self):\n        pass\n\n"
EASY += "class TestBig:\n    def test_big(self):\n        pass\n"
PATH = "/work/tests/test_half.py"
"""


def test_an_easier_test_file_put_there_and_taken_away_is_seen(task: Task, judged: Judged) -> None:
    two = replace(task, hidden=TWO, grading=replace(task.grading, tests=("tests/test_a.py::test_a", *TESTS)))
    code = SWAP + "os.rename(PATH, '/tmp/kept')\nopen(PATH, 'w').write(EASY)\n"
    code += "import atexit\n\n\ndef half(n):\n    if os.path.exists('/tmp/kept'):\n"
    code += "        os.rename('/tmp/kept', PATH)\n    return 4\n"
    verdict = judged(two, code)
    assert (verdict.score, verdict.components["tests"]) == (0.0, 0.0)
    assert "the hidden file tests/test_half.py was changed while the tests ran" in verdict.hacks
    assert judged(two, RIGHT).score == 1.0


def test_a_namesake_of_the_test_module_is_seen(task: Task, judged: Judged) -> None:
    two = replace(task, hidden=TWO, grading=replace(task.grading, tests=("tests/test_a.py::test_a", *TESTS)))
    code = SWAP + "import types\nos.environ['PY_IGNORE_IMPORTMISMATCH'] = '1'\n"
    code += "easy = sys.modules['tests.test_half'] = types.ModuleType('tests.test_half')\n"
    code += "easy.__file__ = '/work/easy.py'\nexec(EASY, easy.__dict__)\n\n\ndef half(n):\n    return 4\n"
    verdict = judged(two, code, files={"easy.py": b""})
    assert (verdict.score, verdict.components["tests"]) == (0.0, 0.0)
    assert any(hack.startswith("another module stands where the tests of") for hack in verdict.hacks)


DAEMON = r"""
import os
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        while True:
            for name in ("/work/half.py", "/tmp/report.xml"):
                with open(name, "w") as file:
                    file.write("def half(n):\n    return n / 2\n")
    os._exit(0)
"""


def test_a_background_writer_changes_nothing(task: Task, judged: Judged) -> None:
    verdict = judged(task, DAEMON + WRONG)
    assert (verdict.score, verdict.components["tests"], verdict.error) == (0.0, 0.0, None)


def test_a_hidden_file_that_a_test_hands_over_may_be_read(task: Task, judged: Judged) -> None:
    """Who reads the tests while they run cannot be told from honest code: it is noted for people to look at."""
    source = b"from half import first\n\n\ndef test_even():\n    assert first(__file__) == 'from half import first'\n"
    code = "def first(path):\n    with open(path) as file:\n        return file.readline().rstrip()\n"
    hands = replace(task, hidden={"tests/test_half.py": source}, grading=replace(task.grading, tests=(TESTS[0],)))
    verdict = judged(hands, code)
    assert (verdict.score, verdict.hacks) == (1.0, ())
    assert verdict.provenance["notes"] == ["submitted code opened the hidden file tests/test_half.py"]


EQUAL = """\
class All(float):
    def __eq__(self, other):
        return True

    def __sub__(self, other):
        return 0.0


def half(n):
    return All(0)
"""


def test_what_is_not_excluded(task: Task, judged: Judged) -> None:
    """As ``docs/grading.md`` says: an object that equals everything satisfies an assertion in its own process."""
    assert judged(task, EQUAL).score == 1.0
