"""What may stand under ``kernel``: errors name file, line and key; sizes are computed, never run."""

from __future__ import annotations

from pathlib import Path

import pytest

from forkgym import tasks
from forkgym.tasks.errors import TaskFormatError
from forkgym.tasks.kernels.spec import TESTS, evaluate, parse_signature

GOOD = """\
schema: 1
id: mine
family: kernel
split: train
license: Apache-2.0
source: written for this test
instruction: Make it fast.
kernel:
  backend: c
  signature: "void kern(const float* a, int* out, int n)"
  args:
    a: {size: n*n}
    out: {size: n}
  shapes:
    public: [{n: 4}]
    hidden: [{n: 5}]
"""


def load(root: Path, text: str) -> tasks.Task:
    (root / "files").mkdir()
    (root / "hidden" / "solution").mkdir(parents=True)
    (root / "task.yaml").write_text(text)
    (root / "files" / "kern.c").write_text("void kern() {}\n")
    (root / "hidden" / "solution" / "kern.c").write_text("void kern() { }\n")
    return tasks.load(root)[0]


def test_a_kernel_task_grades_by_itself(tmp_path: Path) -> None:
    task = load(tmp_path, GOOD)
    assert (task.grading.runner, task.grading.tests) == ("kernel", TESTS)
    assert task.tools == ("bash", "view", "edit", "measure", "submit")


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ("backend: c", "backened: c", 9, "kernel.backened: unknown key; did you mean 'backend'?"),
        ("size: n*n", "sise: n*n", 12, "kernel.args.a.sise: unknown key; did you mean 'size'?"),
        ("void kern(const float* a", "int kern(const float* a", 10, "kernel.signature: must read like: void kern("),
        ("const float* a", "const half* a", 10, "kernel.signature: cannot read the parameter 'const half* a'"),
        ("    out: {size: n}\n", "", 8, "'args' and the pointers of 'signature' differ: out"),
        ("{n: 5}", "{m: 5}", 8, "gives no 'n'"),
        ("size: n*n", "size: n**n", 8, "is no sum, product or quotient"),
        ("size: n*n", "size: __import__('os')", 8, "is no sum, product or quotient"),
        ("size: n*n", "size: n-5", 8, "args.a.size is -1 in the shape {'n': 4}"),
        ("{size: n}", "{size: n, kind: sorted}", 8, "'out' is an output"),
        ("{size: n*n}", "{size: n*n, kind: index}", 12, "'below' belongs to the kinds index and offsets"),
        ("kernel:\n", "grading: {runner: pytest, tests: [a]}\nkernel:\n", 1, "'kernel' grades by itself"),
    ],
)  # fmt: skip
def test_errors_name_file_line_and_key(tmp_path: Path, old: str, new: str, line: int, says: str) -> None:
    assert old in GOOD
    with pytest.raises(TaskFormatError) as caught:
        load(tmp_path, GOOD.replace(old, new))
    assert f"task.yaml:{line}: " in str(caught.value)
    assert says in str(caught.value)


def test_sizes_and_signatures() -> None:
    assert evaluate("(n + 1) * m / 2 - 3", {"n": 4, "m": 5}) == 9
    assert evaluate(7, {}) == 7
    name, parameters = parse_signature("void f(const unsigned char * text, size_t n, double* restrict out);")
    assert name == "f"
    assert [(p.name, p.dtype, p.itemsize, p.role) for p in parameters] == [
        ("text", "u8", 1, "in"),
        ("n", "u64", 8, "scalar"),
        ("out", "f64", 8, "out"),
    ]
