"""What the environment adds to a command, and what reset, fork and grading cost.

python benchmarks/env_step.py [N]
"""

from __future__ import annotations

import functools
import sys

from harness import Section

from forkgym import sandboxes
from forkgym.envs.core import CodingEnv
from forkgym.envs.vector import ThreadVectorEnv
from forkgym.sandboxes.base import Sandbox
from forkgym.sandboxes.bench.baseline import Baseline, connect
from forkgym.sandboxes.bench.timing import Timing, measure
from forkgym.tasks.base import Task
from forkgym.tasks.grading.unittests import run as run_tests
from forkgym.tasks.submission import of_files
from forkgym.tasks.workspace import Bases

STEP, RESET, GRADE, VECTOR = 3.0, 40.0, 60.0, 1.3
ENVS = 64


def run(n: int = 100) -> Section:
    """All rows; with the docker SDK beside them where a daemon answers."""
    section = Section("Environment", ["operation", "p50 / p95 ms", "target (p50)"])
    env = CodingEnv("swe/tiny/*", max_turns=10 * n + 100)
    try:
        reset = measure(lambda: env.reset(seed=1), max(5, n // 5))
        section.rows.append(("reset of a warm task", str(reset), section.check("reset", reset.p50, RESET)))
        _steps(section, env, n)
        _forks(section, env, max(5, n // 5))
        _grades(section, env, max(5, n // 10))
    finally:
        env.close()
    _vector(section)
    _docker(section, max(3, n // 20))
    return section


def _steps(section: Section, env: CodingEnv, n: int) -> None:
    """Steps and bare shell commands in turn, in the same sandbox."""
    shell = env.box.shell()
    steps: list[float] = []
    commands: list[float] = []
    for _ in range(n):
        steps += measure(lambda: env.step({"tool": "bash", "arguments": {"command": "true"}}), 1, warmup=0).samples
        commands += measure(lambda: shell.run("true"), 1, warmup=0).samples
    over = Timing([step - command for step, command in zip(steps, commands, strict=True)])
    section.rows += [
        ("step `true` (bash tool)", str(Timing(steps)), ""),
        ("the command alone, in the same shell", str(Timing(commands)), ""),
        ("added by the environment", str(over), section.check("env step overhead", over.p50, STEP)),
    ]


def _forks(section: Section, env: CodingEnv, n: int) -> None:
    forks: list[CodingEnv] = []

    def close() -> None:
        while forks:
            forks.pop().close()

    fork = measure(lambda: forks.extend(env.fork(1)), n, after=close)
    section.rows.append(("fork 1", str(fork), ""))


def _grades(section: Section, env: CodingEnv, n: int) -> None:
    """A grade of a real solution, and the same hidden tests alone in a sandbox that has it already."""
    for path, data in env.task.oracle.items():  # an empty submission would need no grading box
        env.box.write_file(f"{env.task.workdir}/{path}", data or b"")
    bases = Bases(sandboxes.backend("local"))
    boxes: list[Sandbox] = []
    tests = functools.partial(_test, boxes, env.task)
    grades: list[float] = []
    alone: list[float] = []
    for _ in range(n):
        grades += measure(env.grade, 1, warmup=0).samples
        alone += measure(
            tests, 1, warmup=0, before=lambda: boxes.append(bases.box(env.task)), after=lambda: boxes.pop().close()
        ).samples
    bases.close()
    over = Timing([grade - test for grade, test in zip(grades, alone, strict=True)])
    section.rows += [
        ("grade (on a fork: clean checkout, hidden tests)", str(Timing(grades)), ""),
        ("the hidden tests alone, in a sandbox made ready", str(Timing(alone)), ""),
        ("added by grading on a fork", str(over), section.check("grade overhead", over.p50, GRADE)),
    ]


def _test(boxes: list[Sandbox], task: Task) -> None:
    report = run_tests(boxes[0], task, of_files(task.oracle))
    assert all(report.records[test].passed for test in task.grading.tests)


def _vector(section: Section) -> None:
    """One step of many environments, each with a command that takes a second."""
    sleep = {"tool": "bash", "arguments": {"command": "sleep 1"}}
    envs = ThreadVectorEnv([functools.partial(CodingEnv, "swe/tiny/*")] * ENVS)
    try:
        envs.reset(seed=1)
        timing = measure(lambda: envs.step([sleep] * ENVS), 3, warmup=1)
    finally:
        envs.close()
    met = section.check(f"{ENVS} environments", timing.p50 / 1000, VECTOR, "s")
    section.rows.append((f"a step of {ENVS} environments in threads, `sleep 1` each", str(timing), met))


def _docker(section: Section, n: int) -> None:
    """What a reset, a step and a clean sandbox to grade in cost by the docker SDK alone."""
    client = connect()
    if client is None:
        section.notes.append("No docker daemon answered here, so nothing is compared with its SDK.")
        return
    baseline = Baseline(client)
    try:
        found = baseline.operations(n)
        cycle = measure(baseline.cycle, n, warmup=1)
    finally:
        baseline.close()
    section.rows += [
        ("docker SDK: run (a reset)", str(found["create"]), ""),
        ("docker SDK: exec_run `true` (a step)", str(found["exec true"]), ""),
        ("docker SDK: run, exec_run `true`, remove (a grade without its tests)", str(cycle), ""),
    ]


if __name__ == "__main__":
    sys.stdout.write(run(*map(int, sys.argv[1:2])).markdown())
