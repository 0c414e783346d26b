"""A small kernel task: sums over a sliding window, slow by adding each window anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from forkgym.tasks.base import Grading, Task, Verdict
from forkgym.tasks.grading import judge
from forkgym.tasks.kernels.spec import TESTS, KernelModel
from forkgym.tasks.submission import of_files
from forkgym.tasks.workspace import Bases

SLOW = """\
void kern(const float* x, float* out, int n) {
    for (int i = 0; i < n; i++) {
        double sum = 0;
        for (int j = i; j < i + 200; j++) sum += x[j];
        out[i] = sum;
    }
}
"""
FAST = """\
void kern(const float* x, float* out, int n) {
    double sum = 0;
    for (int j = 0; j < 200; j++) sum += x[j];
    for (int i = 0; i < n; i++) {
        out[i] = sum;
        if (i + 1 < n) sum += (double)x[i + 200] - x[i];
    }
}
"""
KERNEL: dict[str, Any] = {
    "backend": "c",
    "signature": "void kern(const float* x, float* out, int n)",
    "args": {"x": {"size": "n + 199", "low": 1.0, "high": 2.0}, "out": {"size": "n"}},
    "shapes": {"public": [{"n": 100}, {"n": 3000}], "hidden": [{"n": 1}, {"n": 97}], "timed": [{"n": 12001}]},
    "check": {"inputs": ["uniform", "zeros_ones"]},
}


def make_task(**changes: Any) -> Task:
    """The window task; ``changes`` replace keys of ``kernel``."""
    kernel = KernelModel.model_validate(KERNEL | changes).model_dump(exclude_none=True)
    return Task(
        id="windows",
        family="kernel",
        instruction="Make kern.c faster.",
        split="train",
        files={"kern.c": SLOW.encode()},
        hidden={},
        oracle={"kern.c": FAST.encode()},
        grading=Grading("kernel", TESTS, 60.0, {"kernel": kernel}),
        tools=("bash", "view", "edit", "measure", "submit"),
    )


@pytest.fixture
def windows() -> Callable[..., Task]:
    """``windows(**changes)``: the window task."""
    return make_task


@pytest.fixture
def graded(bases: Bases) -> Callable[..., Verdict]:
    """``graded(text, **changes)``: the verdict for this text of kern.c; nothing was changed if it is ``None``."""

    def run(text: str | None, **changes: Any) -> Verdict:
        work = of_files({} if text is None else {"kern.c": text.encode()})
        return judge(make_task(**changes), work, bases.box)

    return run


@pytest.fixture
def slow() -> str:
    """The baseline."""
    return SLOW


@pytest.fixture
def fast() -> str:
    """The expert."""
    return FAST
