"""Compiles, checks and times a kernel on the shapes that the agent may know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forkgym.envs.base import ToolResult
from forkgym.sandboxes.base import Sandbox
from forkgym.tasks.base import Task
from forkgym.tasks.errors import GradingError, TaskFormatError
from forkgym.tasks.kernels.backends import measure
from forkgym.tasks.kernels.native import Measurement
from forkgym.tasks.kernels.spec import spec_of

_LIMIT = 60.0


class Measure:
    """Works on a fork: what is left there is gone, and what runs in the agent's sandbox does not disturb."""

    name = "measure"
    description = (
        "Compile the kernel's file, check it on public shapes, and time it against the version that you were given. "
        "Grading does the same on other shapes and inputs."
    )
    parameters: Mapping[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}

    def run(self, box: Sandbox, task: Task, arguments: Mapping[str, Any], *, limit: float) -> ToolResult:
        """How far the kernel gets, and its speed-up with an interval."""
        if limit <= 0:
            return ToolResult("[not run: the time is up]")
        try:
            spec = spec_of(task)
        except TaskFormatError:
            return ToolResult("There is no kernel in this task to measure.", error=True)
        with box.fork(1)[0] as copy:
            if not copy.exec(("/usr/bin/test", "-f", spec.file), cwd=task.workdir).ok:
                return ToolResult(f"There is no file {spec.file} in {task.workdir}.", error=True)
            try:
                found = measure(copy, task, spec, grading=False, limit=min(_LIMIT, limit))
            except GradingError as error:
                return ToolResult(f"Not measured: {error}", error=True)
        return ToolResult(text(found))

    def fork(self) -> Measure:
        """It has no state."""
        return self


def text(found: Measurement) -> str:
    """What the agent reads."""
    if found.timing is None or found.stage != "timed":
        what = {"builds": "It does not build", "runs": "It does not run", "correct": "It is wrong", "honest": "Refused"}
        return f"{what[found.stage]}: {found.message}"
    clock = found.timing
    s = clock.candidate
    noise = (
        "" if clock.quiet else f" Take it with care: the old version came out {clock.control.value:.2f} times itself."
    )
    return (
        f"Right on the public shapes. {s.value:.3f} times as fast as the version that you were given "
        f"(95 % interval {s.low:.3f} to {s.high:.3f}, {clock.pairs} rounds); {clock.cpu_seconds * 1e6:.1f} µs a call."
        f"{noise}"
    )
