"""Models of processors: occupancy of a GPU, memory transactions of a warp, roofline. Modelled, never measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

WARP = 32
SECTOR = 32
BANKS = 32
_WORD = 4


@dataclass(frozen=True)
class Multiprocessor:
    """What the blocks on one multiprocessor share. Registers are given out per warp, in units."""

    threads: int
    blocks: int
    registers: int
    register_unit: int
    shared: int
    shared_unit: int
    shared_reserved: int


# By compute capability; from the vendor's published tables.
MULTIPROCESSORS = {
    "sm_80": Multiprocessor(2048, 32, 65536, 256, 164 << 10, 128, 1024),
    "sm_90": Multiprocessor(2048, 32, 65536, 256, 228 << 10, 128, 1024),
}


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def occupancy(where: Multiprocessor, threads: int, registers: int, shared: int = 0) -> float:
    """Share of the warps that can be resident: 0 (a block does not fit) to 1.

    ``threads`` per block, ``registers`` per thread, ``shared`` bytes per block. Raises ``ValueError`` if not positive.
    """
    if threads < 1 or registers < 1 or shared < 0:
        raise ValueError("a block has at least one thread, and a thread at least one register")
    warps = _up(threads, WARP) // WARP
    limits = [where.blocks, where.threads // (warps * WARP)]
    limits.append(where.registers // _up(registers * WARP, where.register_unit) // warps)
    limits.append(where.shared // _up(shared + where.shared_reserved, where.shared_unit))
    return min(limits) * warps * WARP / where.threads


def sectors(accesses: Iterable[tuple[int, int]]) -> int:
    """How many 32-byte sectors one request of a warp touches, given (address, bytes) of its threads."""
    return len({part for at, size in accesses for part in range(at // SECTOR, (at + size - 1) // SECTOR + 1)})


def coalescing(requests: Iterable[Sequence[tuple[int, int]]]) -> float:
    """Bytes asked for over bytes moved, over all requests of warps: 1 is ideal, 0.125 is one float per sector.

    Threads that read the same bytes ask once. Raises ``ValueError`` without requests.
    """
    asked = moved = 0
    for request in requests:
        asked += len({byte for at, size in request for byte in range(at, at + size)})
        moved += SECTOR * sectors(request)
    if not moved:
        raise ValueError("no requests")
    return asked / moved


def bank_passes(addresses: Iterable[int]) -> int:
    """Passes that one request of a warp to shared memory needs: different words of one bank wait for each other."""
    words = {at // _WORD for at in addresses}
    return max(Counter(word % BANKS for word in words).values(), default=0)


def intensity(operations: float, moved: float) -> float:
    """Arithmetic intensity: operations per byte. Raises ``ValueError`` if nothing is moved."""
    if moved <= 0:
        raise ValueError("a kernel moves at least one byte")
    return operations / moved


def roofline(operations: float, moved: float, peak: float, bandwidth: float) -> tuple[float, str]:
    """Least seconds a machine needs (operations per second, bytes per second), and by what: compute or memory."""
    if peak <= 0 or bandwidth <= 0:
        raise ValueError("peak and bandwidth must be positive")
    compute, memory = operations / peak, moved / bandwidth
    return (compute, "compute") if compute >= memory else (memory, "memory")
