"""How well kernels are timed: run it on an idle machine.  python benchmarks/kernels.py [--trials 40]

Prints, for a bundled task: the spread of the expert against itself and of the baseline against itself over many
gradings, how often a baseline came out faster, how the estimate compares with a ratio known by construction, and how
long compiling, checking and timing take together.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from dataclasses import replace

import gymnasium as gym

from forkgym import sandboxes, tasks
from forkgym.tasks.base import Task, Verdict
from forkgym.tasks.grading import judge
from forkgym.tasks.kernels.spec import KernelModel
from forkgym.tasks.submission import of_files
from forkgym.tasks.workspace import Bases

REPEATED = """\
static float once(const float* x, int n) {{
    float sum = 0;
    for (int i = 0; i < n; i++) sum += x[i] * x[i];
    return sum;
}}
void kern(const float* x, float* out, int n) {{
    float sum = 0;
    for (volatile int turn = 0; turn < {times}; turn++) sum = once(x, n);
    out[0] = sum;
}}
"""


def repeated(times: int) -> bytes:
    """The loop of ``sum-squares``, run ``times`` times: its cost is known by construction."""
    return REPEATED.format(times=times).encode()


def graded(bases: Bases, task: Task, text: bytes, trials: int) -> tuple[list[Verdict], list[float]]:
    """Verdicts, and the seconds that each took."""
    verdicts: list[Verdict] = []
    seconds: list[float] = []
    for _ in range(trials):
        begun = time.perf_counter()
        verdicts.append(judge(task, of_files({"kern.c": text}), bases.box))
        seconds.append(time.perf_counter() - begun)
    return verdicts, seconds


def describe(name: str, verdicts: list[Verdict]) -> None:
    """One line: spread of the log ratio, extremes, and failures."""
    scored = [verdict for verdict in verdicts if verdict.error is None and "expert_ratio" in verdict.components]
    ratios = [v.components["expert_ratio"] * v.components["expert_speedup"] for v in scored]
    logs = [math.log(ratio) for ratio in ratios]
    spread = statistics.stdev(logs) if len(logs) > 1 else math.nan
    print(
        f"{name}: {len(scored)} of {len(verdicts)} scored; ratio median {statistics.median(ratios):.3f}, "
        f"sd of log {spread:.2%}, from {min(ratios):.3f} to {max(ratios):.3f}; "
        f"called faster {sum(v.components['speedup'] > 1 for v in scored)} times"
    )


def with_sizes(task: Task) -> Task:
    """``sum-squares`` on data that stays in the cache, so that the work alone decides."""
    kernel = dict(task.grading.options["kernel"])
    kernel["shapes"] = {"public": [{"n": 40000}], "hidden": [{"n": 40000}], "timed": [{"n": 40000}]}
    options = {"kernel": KernelModel.model_validate(kernel).model_dump(exclude_none=True)}
    return replace(
        task,
        files={**task.files, "kern.c": repeated(45)},
        grading=replace(task.grading, options=options),
    )


def climb(count: int) -> None:
    """Episodes of a script that measures the baseline, puts the expert in its place, measures again and submits."""
    found = [task for task in tasks.load("kernel/*") if task.grading.options["kernel"]["backend"] in ("c", "cpp")]
    for task in found[:count]:
        name = task.grading.options["kernel"]["file"]
        env = gym.make("forkgym/Kernel-v0", tasks=task)
        env.reset(seed=0)
        begun = time.perf_counter()
        env.step({"tool": "measure", "arguments": {}})
        first = time.perf_counter() - begun
        create = {"command": "create", "path": name, "file_text": (task.oracle[name] or b"").decode()}
        env.step({"tool": "edit", "arguments": create})
        seen = env.step({"tool": "measure", "arguments": {}})[0]["text"]
        reward = env.step({"tool": "submit", "arguments": {}})[1]
        print(f"{task.id}: reward {reward:.2f}; first measure {first:.2f} s; {seen}")
        env.close()


def main() -> None:
    """Run all of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=40)
    trials = parser.parse_args().trials
    bases = Bases(sandboxes.backend("local"))
    matmul = tasks.load("kernel/matmul")[0]
    known = with_sizes(tasks.load("kernel/sum-squares")[0])
    graded(bases, matmul, matmul.files["kern.c"], 1)  # compiles what is trusted
    same, _ = graded(bases, matmul, matmul.files["kern.c"] + b"/* the same */\n", trials)
    describe("A/A, matmul: the baseline against itself", same)
    expert, seconds = graded(bases, matmul, matmul.oracle["kern.c"] or b"", trials)
    describe("expert of matmul", expert)
    nine, _ = graded(bases, known, repeated(5), trials)
    describe("a true ratio of 9", nine)
    climb(10)
    print(f"compile, check and time: median {statistics.median(seconds):.2f} s, slowest {max(seconds):.2f} s")
    bases.close()


if __name__ == "__main__":
    main()
