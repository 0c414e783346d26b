"""B07: a task whose own solution passes by luck, needs the network or hangs does not verify."""

import pytest

from forkgym.tasks.base import Grading
from forkgym.tasks.verify import prove

HEAD = "import os, socket, time, unittest\nimport f\n\n\nclass T(unittest.TestCase):\n    def test_f(self):\n"
# Even and odd microseconds: 16 grades agree once in 2 ** 14 runs.
FLAKY = "        self.assertEqual(f.f() + (time.time_ns() // 1000) % 2, 2)\n"
DNS = "        self.assertTrue(socket.getaddrinfo('example.org', 80))\n"
HANG = "        time.sleep(600)\n"


def proof(desk, body, repeats, timeout=30.0):
    grading = Grading("unittest", ("test_b.T.test_f",), timeout)
    task = desk.task(hidden={"test_b.py": (HEAD + body).encode()}, grading=grading)
    return prove(task, desk.bases, repeats)


def test_a_flaky_test_is_found(desk):
    found = proof(desk, FLAKY, repeats=8)
    assert not found.good
    assert found.flake_rate > 0
    assert any("results differ in" in problem for problem in found.problems)


def test_there_is_no_network(desk):
    found = proof(desk, DNS, repeats=1)
    assert (found.oracle, found.flake_rate) == (0.0, 0.0)
    assert found.problems[0].startswith("the solution fails test_b.T.test_f: gaierror")


def test_a_hang_is_a_timeout_and_no_failure(desk):
    found = proof(desk, HANG, repeats=1, timeout=1.0)
    assert found.problems == (
        "the solution runs out of time (timeout)",
        "the solution fails test_b.T.test_f: not run: out of time",
    )


@pytest.mark.parametrize("repeats", [1, 3])
def test_a_sound_task_verifies(desk, repeats):
    found = prove(desk.task(), desk.bases, repeats)
    assert found.good
    assert (found.oracle, found.nothing, found.repeats) == (1.0, 0.0, repeats)
