"""The runner ``kernel``: is a submitted kernel right, honest and faster? See ``docs/kernels.md``.

The score is the position between baseline (0) and expert (1) on a logarithmic scale, by the low end of the speed-up's
interval. A kernel that is wrong or dishonest scores 0.
"""

from __future__ import annotations

import math
from dataclasses import replace

from forkgym.sandboxes.base import Sandbox
from forkgym.tasks.base import Submission, Task
from forkgym.tasks.errors import GradingError
from forkgym.tasks.grading.base import Record, Report
from forkgym.tasks.kernels import timing
from forkgym.tasks.kernels.backends import measure
from forkgym.tasks.kernels.native import Measurement
from forkgym.tasks.kernels.spec import TESTS, spec_of
from forkgym.tasks.submission import apply


def run(box: Sandbox, task: Task, submission: Submission) -> Report:
    """Grade the kernel file of a submission; nothing else of it is taken. Raises ``GradingError``, ``SandboxError``."""
    spec = spec_of(task)
    kept = {path: change for path, change in submission.changes.items() if path == spec.file}
    dropped = {path: "not the kernel's file" for path in submission.changes if path not in kept}
    change = kept.get(spec.file)
    if change is not None and change.data is None:
        return replace(report(Measurement("builds", f"{spec.file} is gone or a link")), dropped=dropped)
    apply(box, replace(submission, changes=kept), task.workdir)
    found = measure(box, task, spec, grading=True, limit=task.grading.timeout)
    return replace(report(found), dropped=dropped)


def report(found: Measurement) -> Report:
    """What a measurement says as tests, a score and its parts. Raises ``GradingError`` if the expert is not faster."""
    # Of a dishonest kernel only that it builds is known.
    reached = {"builds": 0, "runs": 1, "correct": 2, "honest": 1, "timed": 4}[found.stage]
    records = {test: Record(True) for test in TESTS[:reached]}
    parts = {"compiled": float(reached > 0), "ran": float(reached > 1), "correct": 0.0, "share_right": found.right}
    if found.stage != "timed":
        records[found.stage] = Record(False, found.message)
        return Report(records, timed_out=found.timed_out, hacks=found.hacks, score=0.0, components=parts)
    clock = found.timing
    if clock is None or clock.expert is None:
        raise GradingError("a graded kernel was not timed against its expert")
    s, best = clock.candidate, clock.expert.value
    if best <= timing.FASTER:
        raise GradingError(f"the task's expert is only {best:.3f} times as fast as its baseline on this machine")
    faster = s.low >= timing.FASTER
    expert = faster and s.value >= timing.AS_GOOD * best
    progress = min(1.0, math.log(s.low) / math.log(best)) if faster else 0.0
    records["faster"] = Record(faster, f"{s.value:.3f} times as fast as the baseline [{s.low:.3f}, {s.high:.3f}]")
    records["expert"] = Record(expert, f"{s.value / best:.3f} of the expert's {best:.3f}")
    parts |= {
        "correct": 1.0,
        "speedup": s.value if faster else 1.0,
        "ci_low": s.low,
        "ci_high": s.high,
        "expert_speedup": best,
        "expert_ratio": s.value / best,
        "control": clock.control.value,
        "pairs": float(clock.pairs),
        "cpu_seconds": clock.cpu_seconds,
        "wall_over_cpu": clock.wall_over_cpu,
    }
    return Report(records, score=1.0 if expert else progress, components=parts)
