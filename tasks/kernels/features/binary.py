"""What compilers and their tools say of a kernel, read from their output."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

_REMARK = re.compile(r":(\d+):\d+: optimized: loop vectorized using (\d+) byte vectors")
_LINE = re.compile(r"^\s*[0-9a-f]+:\t(?:[0-9a-f]{2} )*\s*(?:lock |rep[nz]* )?(\S+)\s*(.*)$", re.MULTILINE)
_REGISTER = re.compile(r"%([xyz])mm\d+")
_STACK = re.compile(r"-?0x[0-9a-f]+\(%r[sb]p\)|\(%rsp\)")
_BITS = {"x": 128, "y": 256, "z": 512}
_PTXAS = re.compile(
    r"Function properties for (\S+)\s+(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads"
    r".*?Used (\d+) registers(.*?)(?:\n|$)",
    re.DOTALL,
)


@dataclass(frozen=True)
class Instructions:
    """Instructions of a disassembly by kind. ``vector_bits``: the widest register in use; ``stack``: operands there."""

    total: int
    vector: int
    packed: int
    branches: int
    calls: int
    stack: int
    vector_bits: int


def of_disassembly(text: str) -> Instructions:
    """Read what ``objdump -d`` prints for x86-64. Packed instructions work on all lanes of a vector."""
    counts: Counter[str] = Counter()
    widest = 0
    for name, operands in _LINE.findall(text):
        registers = _REGISTER.findall(operands)
        counts["total"] += 1
        counts["vector"] += bool(registers)
        counts["packed"] += bool(registers) and not re.search(r"(ss|sd)(2\w+)?$|^v?mov[dq]$", name)
        counts["branches"] += name.startswith("j") and name != "jmp"
        counts["calls"] += name.startswith("call")
        counts["stack"] += bool(_STACK.search(operands))
        widest = max([widest, *(_BITS[kind] for kind in registers)])
    total, vector, packed, branches, calls, stack = (
        counts[key] for key in ("total", "vector", "packed", "branches", "calls", "stack")
    )
    return Instructions(total, vector, packed, branches, calls, stack, widest)


def vectorised_loops(remarks: str) -> dict[int, int]:
    """Line of the source to the widest vector in bits, from what ``gcc -fopt-info-vec`` prints."""
    found: dict[int, int] = {}
    for line, width in _REMARK.findall(remarks):
        found[int(line)] = max(found.get(int(line), 0), 8 * int(width))
    return found


def stack_bytes(usage: str) -> dict[str, int]:
    """Function to bytes of stack, from a ``.su`` file of ``gcc -fstack-usage``."""
    rows = (line.split("\t") for line in usage.splitlines())
    return {row[0].rsplit(":", 1)[-1]: int(row[1]) for row in rows if len(row) == 3}


@dataclass(frozen=True)
class DeviceCode:
    """One CUDA kernel as ptxas reports it. All but ``registers`` (per thread) in bytes."""

    registers: int
    shared: int
    stack: int
    spill_stores: int
    spill_loads: int


def of_ptxas(report: str) -> dict[str, DeviceCode]:
    """Function to facts, from what ``nvcc -Xptxas -v`` prints."""
    found: dict[str, DeviceCode] = {}
    for name, stack, stores, loads, registers, rest in _PTXAS.findall(report):
        shared = re.search(r"(\d+) bytes smem", rest)
        found[name] = DeviceCode(int(registers), int(shared[1]) if shared else 0, int(stack), int(stores), int(loads))
    return found
