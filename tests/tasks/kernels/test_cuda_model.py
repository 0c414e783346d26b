"""The model of a GPU on the CPU: requests, sectors, banks, wrong indices and races, counted by hand."""

from __future__ import annotations

import pytest

from forkgym.sandboxes.base import SandboxSpec
from forkgym.tasks.kernels.features import cuda
from forkgym.tasks.workspace import Bases

COPY = """\
__global__ void copy(const float* a, float* b, int n, int step) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) b[i] = a[i * step];
}
"""
COPY_IS = "void copy(const float* a, float* b, int n, int step)"
TILE = """\
__global__ void turn(const float* a, float* b) {
    __shared__ float tile[32][WIDTH];
    tile[threadIdx.y][threadIdx.x] = a[threadIdx.y * 32 + threadIdx.x];
    BARRIER;
    b[threadIdx.y * 32 + threadIdx.x] = tile[threadIdx.x][threadIdx.y];
}
"""


def modelled(bases: Bases, *arguments: object) -> cuda.Modelled:
    with bases.backend.create(SandboxSpec()) as box:
        problem, found = cuda.run(box, *arguments)  # pyright: ignore[reportArgumentType]
    assert problem == ""
    assert found is not None
    return found


@pytest.mark.parametrize(("step", "sectors", "coalescing"), [(1, 32, 1.0), (8, 16 + 128, 1024 / (144 * 32))])
def test_neighbours_share_sectors_and_strides_do_not(bases: Bases, step: int, sectors: int, coalescing: float) -> None:
    """Four warps read and write: 8 requests of 128 bytes; 4 sectors each, or 32 for a read of every eighth float."""
    found = modelled(
        bases, COPY, COPY_IS, {"a": ("float", 1024), "b": ("float", 128)},
        f"dim3(2), dim3(64), [&] {{ copy(a, b, 128, {step}); }}",
    )  # fmt: skip
    assert (found.global_requests, found.asked_bytes, found.sectors) == (8, 1024, sectors)
    assert found.coalescing == coalescing
    assert (found.out_of_bounds, found.races, found.shared_requests) == (0, 0, 0)


def test_indices_beyond_a_buffer_are_counted(bases: Bases) -> None:
    found = modelled(
        bases, COPY, COPY_IS, {"a": ("float", 128), "b": ("float", 100)},
        "dim3(2), dim3(64), [&] { copy(a, b, 128, 1); }",
    )  # fmt: skip
    assert found.out_of_bounds == 28


@pytest.mark.parametrize(
    ("width", "barrier", "passes", "racy"),
    [(32, "__syncthreads()", 32 + 32 * 32, False), (33, "__syncthreads()", 64, False), (33, "", 64, True)],
)
def test_banks_and_barriers_of_shared_memory(bases: Bases, width: int, barrier: str, passes: int, racy: bool) -> None:
    """32 warps write a row each without conflicts, and read a column: one bank 32 times, or 32 banks if padded."""
    source = TILE.replace("WIDTH", str(width)).replace("BARRIER", barrier)
    found = modelled(
        bases, source, "void turn(const float* a, float* b)", {"a": ("float", 1024), "b": ("float", 1024)},
        "dim3(1), dim3(32, 32), [&] { turn(a, b); }",
    )  # fmt: skip
    assert (found.shared_requests, found.bank_passes) == (64, passes)
    assert (found.races > 0) == racy
    assert (found.coalescing, found.out_of_bounds, found.diverged_barriers) == (1.0, 0, 0)


def test_what_the_model_does_not_know_is_a_complaint(bases: Bases) -> None:
    with bases.backend.create(SandboxSpec()) as box:
        source = "__global__ void f(float* a) { a[0] = __shfl_sync(~0u, a[0], 1); }"
        problem, found = cuda.run(
            box, source, "void f(float* a)", {"a": ("float", 1)}, "dim3(1), dim3(1), [&] { f(a); }"
        )
    assert found is None
    assert "__shfl_sync" in problem
