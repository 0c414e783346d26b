"""The bundled kernels: enough of them, told truthfully, proven."""

from __future__ import annotations

import pytest

from forkgym import tasks
from forkgym.tasks import conformance
from forkgym.tasks.base import Task
from forkgym.tasks.kernels.spec import NATIVE, spec_of
from forkgym.tasks.verify import prove
from forkgym.tasks.workspace import Bases

KERNELS = tasks.load("kernel/*")
NAMES = {task.id.removeprefix("kernel/") for task in KERNELS}
# One task at least of each kind that the library promises.
KINDS = [
    {"sum-squares", "column-sums", "row-moments"},
    {"integral-image", "window-max", "smooth-channels"},
    {"laplacian-3d", "life"},
    {"matmul", "matmul-int8"},
    {"conv2d", "fir-filter"},
    {"sort-ints", "sort-rows"},
    {"count-substring", "edit-distance"},
    {"crc32", "fnv-records"},
    {"sparse-times-dense"},
    {"n-body"},
    {"box-blur", "sobel"},
]


def test_there_are_enough_native_kernels_of_every_kind() -> None:
    native = [task for task in KERNELS if spec_of(task).backend in NATIVE]
    assert len(native) >= 24
    assert {spec_of(task).backend for task in native} == set(NATIVE)
    assert [kind - NAMES for kind in KINDS if kind - NAMES] == []


@pytest.mark.parametrize("task", KERNELS, ids=lambda task: task.id)
def test_each_is_proven_and_says_what_is_asked(task: Task) -> None:
    spec = spec_of(task)
    assert conformance.check_text(task) == []
    assert spec.signature in task.instruction
    assert spec.file in task.instruction
    assert set(task.files) == set(task.oracle) == {spec.file}
    # Edge cases are hidden ones: the smallest shape, and a size that is no multiple of a vector.
    sizes = [size for shape in spec.shapes.hidden for size in shape.values()]
    assert 1 in sizes
    assert any(size % 2 and size > 8 for size in sizes)
    assert spec.shapes.timed
    assert all(shape not in spec.shapes.public for shape in spec.shapes.to_time)


@pytest.mark.parametrize("name", ["crc32", "sort-rows"])
def test_a_proof_is_reproduced(name: str, bases: Bases) -> None:
    """Two of them here; ``forkgym tasks verify 'kernel/*'`` does all."""
    assert prove(KERNELS[f"kernel/{name}"], bases, repeats=1).problems == ()
