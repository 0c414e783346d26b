"""What the environment adds to a command, and what reset, fork and grading cost.

python benchmarks/env_step.py [N]
"""

from __future__ import annotations

import sys

from harness import Section

from forkgym.envs.core import CodingEnv
from forkgym.sandboxes.bench.timing import Timing, measure

TARGET = 4.0


def run(n: int = 100) -> Section:
    """Steps and bare shell commands in turn, in the same sandbox."""
    env = CodingEnv("swe/tiny/*", max_turns=10 * n + 100)
    forks: list[CodingEnv] = []

    def close_forks() -> None:
        while forks:
            forks.pop().close()

    try:
        reset = measure(lambda: env.reset(seed=1), max(5, n // 5))
        shell = env.box.shell()
        steps: list[float] = []
        commands: list[float] = []
        for _ in range(n):
            steps += measure(lambda: env.step({"tool": "bash", "arguments": {"command": "true"}}), 1, warmup=0).samples
            commands += measure(lambda: shell.run("true"), 1, warmup=0).samples
        over = Timing([step - command for step, command in zip(steps, commands, strict=True)])
        fork = measure(lambda: forks.extend(env.fork(1)), max(5, n // 5), after=close_forks)
        for path, data in env.task.oracle.items():  # an empty submission would need no grading box
            env.box.write_file(f"{env.task.workdir}/{path}", data or b"")
        grade = measure(env.grade, max(5, n // 10))
    finally:
        env.close()
    section = Section("Environment", ["operation", "p50 / p95 ms", "target (p50)"])
    section.rows = [
        ("step `true` (bash tool)", str(Timing(steps)), ""),
        ("the command alone, in the same shell", str(Timing(commands)), ""),
        ("added by the environment", str(over), section.check("env step overhead", over.p50, TARGET)),
        ("reset", str(reset), ""),
        ("fork 1", str(fork), ""),
        ("grade (clean checkout, hidden tests)", str(grade), ""),
    ]
    return section


if __name__ == "__main__":
    sys.stdout.write(run(*map(int, sys.argv[1:2])).markdown())
