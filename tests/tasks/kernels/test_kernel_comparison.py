"""What a comparison must not let pass: outputs smaller than a tolerance, and infinities."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from forkgym.tasks.base import Task
from forkgym.tasks.grading import judge
from forkgym.tasks.submission import of_files
from forkgym.tasks.workspace import Bases

Windows = Callable[..., Task]
SHARE = """\
void kern(const float* x, float* out, int n) {
    double total = 0;
    for (int j = 0; j < n; j++) total += x[j];
    for (int i = 0; i < n; i++) out[i] = x[i] / total;
}
"""
LARGE = [{"n": 20000}]
INFINITY = "    out[0] = -1.0f / 0.0f;\n}\n"


def outcome(task: Task, text: str, bases: Bases) -> tuple[float | None, dict[str, float]]:
    verdict = judge(task, of_files({"kern.c": text.encode()}), bases.box)
    return verdict.score, dict(verdict.components)


@pytest.mark.parametrize("value", ["0", "1.0f / n"])
def test_zeros_and_the_mean_are_wrong_where_outputs_are_tiny_g01(windows: Windows, bases: Bases, value: str) -> None:
    """Field case G01: shares of a sum, 5e-5 each, lie below the usual absolute tolerances; neither fill may pass."""
    task = windows(shapes={"public": LARGE, "hidden": LARGE, "timed": LARGE}, check={"inputs": ["uniform"]})
    task = replace(task, files={"kern.c": SHARE.encode()})
    fill = f"void kern(const float* x, float* out, int n) {{ for (int i = 0; i < n; i++) out[i] = {value}; }}"
    score, parts = outcome(task, fill, bases)
    assert (score, parts["compiled"], parts["correct"]) == (0.0, 1.0, 0.0)


@pytest.mark.parametrize("sign", ["", "-"])
def test_an_infinity_where_the_reference_is_finite_is_wrong_g03(
    windows: Windows, bases: Bases, fast: str, sign: str
) -> None:
    """Field case G03."""
    text = fast.rstrip().removesuffix("}") + f"    out[n - 1] = {sign}1.0f / 0.0f;\n}}\n"
    score, parts = outcome(windows(), text, bases)
    assert (score, parts["ran"], parts["correct"]) == (0.0, 1.0, 0.0)


@pytest.mark.parametrize(("own", "right"), [("-1.0f / 0.0f", 1.0), ("1.0f / 0.0f", 0.0), ("-3e38f", 0.0)])
def test_an_infinity_of_the_reference_asks_for_the_same_g03(
    windows: Windows, bases: Bases, slow: str, fast: str, own: str, right: float
) -> None:
    """Field case G03: where the reference is minus infinity, only that is right."""
    ends = {name: text.rstrip().removesuffix("}") for name, text in (("slow", slow), ("fast", fast))}
    files = {"kern.c": (ends["slow"] + INFINITY).encode()}
    task = replace(windows(), files=files, oracle={"kern.c": (ends["fast"] + INFINITY).encode()})
    _, parts = outcome(task, ends["fast"] + f"    out[0] = {own};\n}}\n", bases)
    assert (parts["ran"], parts["correct"]) == (1.0, right)
