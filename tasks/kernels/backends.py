"""Backends by name: each takes a file of a sandbox and says how right and how fast it is (``native.measure``)."""

from __future__ import annotations

from forkgym.registry import resolve
from forkgym.sandboxes.base import Sandbox
from forkgym.tasks.base import Task
from forkgym.tasks.kernels.native import Measurement
from forkgym.tasks.kernels.spec import KernelModel

BACKENDS = {
    "c": "forkgym.tasks.kernels.native:measure",
    "cpp": "forkgym.tasks.kernels.native:measure",
}


def measure(box: Sandbox, task: Task, spec: KernelModel, *, grading: bool, limit: float) -> Measurement:
    """Measure the kernel's file in the task's directory by the task's backend. Raises ``GradingError``."""
    backend = resolve("kernel backend", spec.backend, BACKENDS)
    return backend(box, task, spec, f"{task.workdir}/{spec.file}", grading=grading, limit=limit)
