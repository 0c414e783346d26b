"""Features of kernels: counted by hand, or read from the tools that are here."""

from __future__ import annotations

import shutil

import pytest

from forkgym.sandboxes.base import SandboxSpec
from forkgym.tasks.errors import GradingError
from forkgym.tasks.kernels.features import binary, device, energy
from forkgym.tasks.kernels.features.source import of_source
from forkgym.tasks.workspace import Bases


def test_source_counts_loops_and_their_depth_but_no_comments() -> None:
    facts = of_source(
        """\
// for (;;) a loop that is none
void kern(const float* restrict a, float* out, int n) {
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < n; j++)
            for (int k = 0; k < n; k++) out[i] += sqrtf(a[j * n + k]);
        if (i) out[i] = i > 3 ? 1 : 2;
    }
    while (n > 0) n--;
    const char* text = "while (1) for (;;)";
}
"""
    )
    assert (facts.loops, facts.loop_depth, facts.branches, facts.math_calls) == (4, 3, 2, 1)
    assert (facts.restrict, facts.intrinsics, facts.vector_bits, facts.lines) == (True, 0, 0, 9)


@pytest.mark.parametrize(
    ("text", "count", "bits"),
    [
        ("__m256 a = _mm256_add_ps(b, c);", 1, 256),
        ("__m128i a = _mm_add_epi32(b, c);", 1, 128),
        ("typedef float v16 __attribute__((vector_size(64)));", 0, 512),
    ],
)
def test_source_sees_vectors_written_by_hand(text: str, count: int, bits: int) -> None:
    facts = of_source(text)
    assert (facts.intrinsics, facts.vector_bits) == (count, bits)


def test_disassembly_is_counted_by_kind() -> None:
    facts = binary.of_disassembly(
        """\
0000000000001000 <kern>:
    1000:\tvmovups (%rdi),%ymm0
    1004:\tvaddps %ymm1,%ymm0,%ymm0
    1008:\tvaddss %xmm1,%xmm0,%xmm0
    100c:\tmov    %rax,-0x8(%rsp)
    1010:\tcall   1100 <sqrtf@plt>
    1014:\tjne    1000 <kern>
    1018:\tjmp    1000 <kern>
    101c:\tret
"""
    )
    assert facts == binary.Instructions(total=8, vector=3, packed=2, branches=1, calls=1, stack=1, vector_bits=256)


def test_compiler_remarks_stack_and_ptxas_are_read() -> None:
    remark = "k.c:3:8: optimized: loop vectorized using {} byte vectors\n"
    assert binary.vectorised_loops(remark.format(16) + remark.format(32)) == {3: 256}
    assert binary.stack_bytes("k.c:3:6:kern\t32\tstatic\n") == {"kern": 32}
    report = """\
ptxas info    : Function properties for kern
    16 bytes stack frame, 12 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 40 registers, 4096 bytes smem, 400 bytes cmem[0]
"""
    assert binary.of_ptxas(report) == {"kern": binary.DeviceCode(40, 4096, 16, 12, 8)}


@pytest.mark.parametrize(
    ("registers", "shared", "share"),
    [(32, 0, 1.0), (168, 0, 0.125), (32, 100 << 10, 0.25), (32, 300 << 10, 0.0)],
)
def test_occupancy_of_blocks_of_256_threads(registers: int, shared: int, share: float) -> None:
    """168 registers: 5376 a warp, 12 warps, one block of 8 of 64 warps. 100 KiB: two blocks in 228 KiB, 16 of 64."""
    assert device.occupancy(device.MULTIPROCESSORS["sm_90"], 256, registers, shared) == share


def test_warps_move_sectors_and_wait_for_banks() -> None:
    neighbours = [(4 * lane, 4) for lane in range(32)]
    strided = [(32 * lane, 4) for lane in range(32)]
    assert (device.sectors(neighbours), device.sectors(strided), device.sectors([(30, 4)])) == (4, 32, 2)
    assert (device.coalescing([neighbours]), device.coalescing([strided])) == (1.0, 0.125)
    assert device.coalescing([neighbours, strided]) == 256 / (4 * 32 + 32 * 32)
    assert device.bank_passes(4 * lane for lane in range(32)) == 1
    assert device.bank_passes(128 * lane for lane in range(32)) == 32
    assert device.bank_passes(132 * lane for lane in range(32)) == 1
    assert device.bank_passes([8] * 32) == 1


def test_roofline_names_what_limits() -> None:
    assert device.roofline(100, 10, peak=50, bandwidth=10) == (2.0, "compute")
    assert device.roofline(100, 50, peak=50, bandwidth=10) == (5.0, "memory")
    assert device.intensity(100, 50) == 2.0


def test_caret_charges_failures() -> None:
    """Two of energy 100: one halved and right, one wrong after 50: spent 50 + 150 of 200."""
    assert energy.caret([(100, 50, True), (100, 50, False)]) == 0.0
    assert energy.caret([(100, 25, True)]) == 0.75
    assert energy.caret([(100, None, False)]) == -1.0
    with pytest.raises(ValueError, match="no runs"):
        energy.caret([])


def test_callgrind_totals_become_energy_and_nothing_else_does() -> None:
    text = "events: Ir Dr Dw I1mr D1mr D1mw ILmr DLmr DLmw\ntotals: 1000 9 9 3 4 1 0 2\n"
    counts = energy.of_callgrind(text)
    assert counts == energy.Counts(1000, 5, 2)
    assert counts.energy == 1000 + 20 * 5 + 200 * 2
    with pytest.raises(GradingError, match="no output of callgrind"):
        energy.of_callgrind("events: Ir\n")
    with pytest.raises(GradingError, match="cache-sim"):
        energy.of_callgrind("events: Ir\ntotals: 5\n")


PROGRAM = """\
static float a[512][512];
__attribute__((noinline)) float kern(int down) {
    float sum = 0;
    for (int i = 0; i < 512; i++)
        for (int j = 0; j < 512; j++) sum += *(volatile float*)(down ? &a[j][i] : &a[i][j]);
    return sum;
}
int main(void) { return kern(DOWN) != 0; }
"""


def test_energy_of_a_run_is_repeatable_and_sees_the_cache(bases: Bases) -> None:
    """A megabyte read along its rows misses once per 16 floats; along its columns, each time."""
    if not shutil.which("valgrind"):
        pytest.skip("valgrind is not installed")
    found: dict[int, energy.Counts] = {}
    with bases.backend.create(SandboxSpec()) as box:
        box.write_file("/tmp/k/k.c", PROGRAM.encode())
        for down in (0, 1):
            command = f"gcc -O1 -march={energy.MARCH} -DDOWN={down} -o /tmp/k/p{down} /tmp/k/k.c"
            assert box.exec(command, timeout=60).ok
            found[down] = energy.count(box, f"/tmp/k/p{down}", "kern", "/tmp/k")
        assert energy.count(box, "/tmp/k/p0", "kern", "/tmp/k") == found[0]
        with pytest.raises(GradingError, match="never called nothing"):
            energy.count(box, "/tmp/k/p0", "nothing", "/tmp/k")
    assert found[0].d1_misses == pytest.approx(512 * 512 / 16, rel=0.01)
    assert found[1].d1_misses == pytest.approx(512 * 512, rel=0.01)
    assert found[1].energy > 1.5 * found[0].energy
