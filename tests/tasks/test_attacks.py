"""Submissions that try to pass without being right. Each scores 0, and an honest one beside it scores 1."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from forkgym.sandboxes.base import Limits
from forkgym.tasks.base import FileChange, Submission, Task, Verdict
from forkgym.tasks.grading import grade
from forkgym.tasks.workspace import Bases

Judged = Callable[..., Verdict]
RIGHT = "def half(n):\n    return n / 2\n"
WRONG = "\n\ndef half(n):\n    return n * 2\n"

FORGED = r"""
import json, os, sys
LINES = "".join(json.dumps({"nonce": nonce, "event": "test", "id": "test_half.TestHalf." + name, "passed": True,
                            "message": "", "seconds": 0.0}) + "\n"
                for nonce in ("", "0" * 32, None) for name in ("test_even", "test_odd", "test_big"))
LINES += json.dumps({"nonce": "", "event": "end", "disturbed": ""}) + "\n"
"""
EVERY_PROCESS = r"""
import os
PROCESSES = [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]
"""
# Whatever it can read that speaks of the tests, it turns into an answer.
FOUND = r"""
def half(n):
    return 4 if b"only-the-hidden-tests-say" in b"".join(SEEN) else n * 2
"""
READS = r"""
SEEN = []
def look(path):
    try:
        with open(path, "rb") as file:
            SEEN.append(file.read(1 << 22))
    except OSError:
        pass
"""
MEMORY = r"""
import os, re
NEEDLE = re.compile(b"only-the-hidden-[t]ests-say")  # a pattern that does not match itself
SEEN = []
def search():
    where = "/proc/{process}/"
    for line in open(where + "maps"):
        start, end = (int(part, 16) for part in re.match("([0-9a-f]+)-([0-9a-f]+)", line).groups())
        if " rw" in line and end < 1 << 62:
            with open(where + "mem", "rb", 0) as file:
                file.seek(start)
                SEEN.append(bool(NEEDLE.search(file.read(min(end - start, 1 << 24)))))
try:
    search()
except OSError:
    pass
def half(n):
    return 4 if any(SEEN) else n * 2
"""

ATTACKS = {
    "exit_at_import": "import os\nos._exit(0)" + WRONG,
    "sys_exit_at_import": "import sys\nsys.exit(0)" + WRONG,
    "exit_in_call": "import os\n\n\ndef half(n):\n    os._exit(0)\n",
    "sys_exit_in_call": "def half(n):\n    raise SystemExit(0)\n",
    "keyboard_interrupt": "def half(n):\n    raise KeyboardInterrupt\n",
    "skip": "import unittest\n\n\ndef half(n):\n    raise unittest.SkipTest('not today')\n",
    "patched_unittest": "import unittest\nunittest.TestCase.assertEqual = lambda *a, **k: None\n"
    "unittest.TestCase.run = lambda self, result: result.addSuccess(self)" + WRONG,
    "patched_builtins": "import builtins\nbuiltins.AssertionError = Warning\nbuiltins.isinstance = lambda *a: True"
    + WRONG,
    "equal_to_all": "class All(float):\n    def __eq__(self, other):\n        return True\n\n\n"
    "def half(n):\n    return All(0)\n",
    "equal_to_all_plain": "class All:\n    def __eq__(self, other):\n        return True\n\n\n"
    "def half(n):\n    return All()\n",
    "prints_results": FORGED + "print(LINES, flush=True)\nsys.stderr.write(LINES)" + WRONG,
    "writes_to_all_descriptors": FORGED
    + r"""
for number in range(256):
    try:
        os.write(number, LINES.encode())
    except OSError:
        pass
"""
    + WRONG,
    "writes_to_all_proc_descriptors": FORGED
    + EVERY_PROCESS
    + r"""
for process in PROCESSES:
    for number in range(8):
        try:
            with open(f"/proc/{process}/fd/{number}", "w") as file:
                file.write(LINES)
        except OSError:
            pass
"""
    + WRONG,
    "kills_its_parent": "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)" + WRONG,
    "kills_all": "import os, signal\nos.kill(-1, signal.SIGKILL)" + WRONG,
    "signals_its_parent": "import os, signal\nfor number in signal.valid_signals() - {9, 19, 20, 21, 22}:\n"
    "    os.kill(os.getppid(), number)" + WRONG,
    "limits_its_parent": "import os, resource\nfor kind in range(16):\n    try:\n"
    "        resource.prlimit(os.getppid(), kind, (0, 0))\n    except (OSError, ValueError):\n        pass" + WRONG,
    "traces_its_parent": r"""
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
for request in (16, 0x4206):  # attach, seize
    if libc.ptrace(request, os.getppid(), 0, 0) == 0:
        os._exit(0)
"""
    + WRONG,
    "reads_arguments_and_environment": READS
    + EVERY_PROCESS
    + r"""
for process in PROCESSES + [os.getpid()]:
    for name in ("cmdline", "environ", "fd/0", "fd/1", "fd/3"):
        look(f"/proc/{process}/{name}")
"""
    + FOUND,
    "reads_own_memory": MEMORY.format(process="self"),
    "reads_the_memory_of_its_parent": MEMORY.format(process='" + str(os.getppid()) + "'),
    "reads_the_parent_by_system_call": r"""
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
class Piece(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t)]
room = ctypes.create_string_buffer(64)
mine = Piece(ctypes.addressof(room), 64)
its = Piece(id(None), 64)
GOT = libc.process_vm_readv(os.getppid(), ctypes.byref(mine), 1, ctypes.byref(its), 1, 0)
def half(n):
    return 4 if GOT > 0 else n * 2
""",
    "finds_files": READS
    + r"""
import os
for top in ("/work", "/tmp", "/home", "/var/tmp", "/dev/shm", "/run"):
    for folder, _, names in os.walk(top):
        for name in names:
            if os.path.isfile(os.path.join(folder, name)) and not name.endswith(("half.py", ".pyc")):
                look(os.path.join(folder, name))
"""
    + FOUND,
    "walks_the_stack": "import sys\n\n\ndef half(n):\n    frame = sys._getframe()\n    while frame:\n"
    "        for value in list(frame.f_locals.values()):\n            if hasattr(value, 'addSuccess'):\n"
    "                return 4\n        frame = frame.f_back\n    return n * 2\n",
    "endless_call": "def half(n):\n    while True:\n        pass\n",
    "endless_import": "while True:\n    pass\n",
    "huge_result": "def half(n):\n    return 'x' * (1 << 30)\n",
    "large_result": "def half(n):\n    return 'x' * (100 << 20)\n",
    "huge_number": "def half(n):\n    return 1 << (1 << 27)\n",
    "deep_result": "def half(n):\n    deep = []\n    for _ in range(90000):\n        deep = [deep]\n    return deep\n",
    "talks_out_of_turn": r"""
import os, socket, stat, struct
for number in range(3, 64):
    try:
        if stat.S_ISSOCK(os.fstat(number).st_mode):
            data = b'{"kind": "value", "value": ["i", "0x4"], "number": 2}'
            os.write(number, (struct.pack(">I", len(data)) + data) * 50)
    except OSError:
        pass
"""
    + WRONG,
    "raises_while_explaining": "class Bad(Exception):\n    def __str__(self):\n        raise SystemExit\n\n\n"
    "def half(n):\n    raise Bad\n",
}


@pytest.mark.parametrize("name", ATTACKS)
def test_the_attack_scores_zero(name: str, task: Task, judged: Judged) -> None:
    verdict = judged(task, ATTACKS[name])
    assert verdict.error is None
    assert (verdict.score, verdict.resolved) == (0.0, False)
    # Not one test: half(8) is 4 for whoever has read the tests.
    assert [finding.id for finding in verdict.findings if finding.passed] == []


def test_the_honest_one_beside_them_scores_one(task: Task, judged: Judged) -> None:
    assert judged(task, RIGHT).score == 1.0


@pytest.mark.parametrize("end", ["", "\nos._exit(0)\n"])
@pytest.mark.parametrize("left", [0, 3])
def test_a_runner_without_descriptors_gives_a_score_and_no_error(
    left: int, end: str, task: Task, judged: Judged
) -> None:
    take = f"import os, resource\nresource.prlimit(os.getppid(), resource.RLIMIT_NOFILE, ({left}, {left}))\n"
    verdict = judged(task, take + (end or WRONG))
    assert (verdict.score, verdict.components["tests"], verdict.error) == (0.0, 0.0, None)


@pytest.mark.parametrize("name", ["kills_its_parent", "kills_all"])
def test_killing_the_runner_is_named(name: str, task: Task, judged: Judged) -> None:
    verdict = judged(task, ATTACKS[name])
    assert verdict.hacks == ("the test runner was killed by signal 9 while submitted code ran",)
    assert (verdict.stage, verdict.components["tests"]) == ("unresolved", 0.0)


def test_a_stopped_runner_is_a_timeout(task: Task, judged: Judged) -> None:
    short = replace(task, grading=replace(task.grading, timeout=1.5))
    verdict = judged(short, "import os, signal\nos.kill(os.getppid(), signal.SIGSTOP)" + WRONG)
    assert (verdict.score, verdict.stage, verdict.error) == (0.0, "timeout", None)
    assert verdict.findings[0].message == "not run: out of time"


def test_a_hang_fails_its_test_and_the_next_ones_run(task: Task, judged: Judged) -> None:
    hang = "def half(n):\n    while n == 7:\n        pass\n    return n / 2\n"
    passed = {finding.id.rpartition(".")[2]: finding for finding in judged(task, hang).findings}
    assert passed["test_odd"].message == "submitted code gave no answer within 0.5 s"
    assert (passed["test_even"].passed, passed["test_odd"].passed, passed["test_big"].passed) == (True, False, True)


def test_a_hang_that_a_test_swallows_still_fails_it(make: Callable[..., Task], judged: Judged) -> None:
    source = b"""\
import unittest

from half import half


class TestHalf(unittest.TestCase):
    def test_even(self):
        try:
            half(8)
        except BaseException:
            pass
"""
    task = make(hidden={"test_half.py": source})
    task = replace(task, grading=replace(task.grading, tests=("test_half.TestHalf.test_even",)))
    assert judged(task, RIGHT).score == 1.0
    verdict = judged(task, ATTACKS["exit_in_call"])
    assert verdict.score == 0.0
    assert verdict.findings[0].message == "submitted code was lost: the process ended"


def test_greedy_code_gets_a_memory_error_of_its_own(make: Callable[..., Task], judged: Judged) -> None:
    task = make(limits=Limits(memory=256 << 20))
    verdict = judged(task, ATTACKS["huge_result"])
    assert verdict.findings[0].message == "MemoryError (line 10)"


PLANTED = {
    "sitecustomize.py": b"import os\nos._exit(0)\n",
    "usercustomize.py": b"import os\nos._exit(0)\n",
    "unittest.py": b"class TestCase:\n    pass\n",
    "json.py": b"def loads(text):\n    return {'kind': 'value'}\n",
    "socket.py": b"raise SystemExit(0)\n",
    "forkgym.py": b"raise SystemExit(0)\n",
    "half_test.pth": b"import os; os._exit(0)\n",
    "test_half.py": b"import unittest\n\n\nclass TestHalf(unittest.TestCase):\n    test_even = lambda self: None\n",
}


def test_planted_modules_neither_help_nor_hurt(task: Task, judged: Judged) -> None:
    wrong = judged(task, WRONG, files=dict(PLANTED))
    assert (wrong.score, wrong.components["tests"], wrong.error) == (0.0, 0.0, None)
    assert wrong.provenance["dropped"] == {"test_half.py": "a hidden test stands there"}
    assert judged(task, RIGHT, files=dict(PLANTED)).score == 1.0


def test_a_link_out_of_the_directory_leads_nowhere(task: Task, bases: Bases) -> None:
    links = {
        "half.py": FileChange(None, link="/etc/passwd"),
        "out": FileChange(None, link="/tmp"),
        "up": FileChange(None, link="../../.."),
    }
    verdict = grade(task, Submission(links), bases.box)
    assert (verdict.score, verdict.error) == (0.0, None)
    honest = Submission({**links, "half.py": FileChange(RIGHT.encode())})
    assert grade(task, honest, bases.box).score == 1.0


DAEMON = r"""
import os
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        while True:
            for name in ("/work/half.py", "/tmp/result", "/work/test_half.py"):
                with open(name, "w") as file:
                    file.write("def half(n):\n    return n / 2\n")
    os._exit(0)
"""


def test_a_background_writer_changes_nothing(task: Task, judged: Judged) -> None:
    verdict = judged(task, DAEMON + WRONG)
    assert (verdict.score, verdict.components["tests"], verdict.error) == (0.0, 0.0, None)
