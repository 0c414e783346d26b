"""CUDA kernels without a GPU: run on fibres, and counted. Modelled, never a time; see ``guest/cuda_model.h``."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

from forkgym.sandboxes.base import Sandbox
from forkgym.tasks.errors import GradingError

_GUEST = "forkgym.tasks.kernels.guest"
_MISSING = 127
_BUILD = (
    "cd {place} && g++ -std=c++17 -O1 -w -fsanitize=thread -include cuda_model.h -x c++ -c kernel.cu -o kernel.o",
    "cd {place} && g++ -std=c++17 -O1 -w -o model main.cpp cuda_model.cpp kernel.o -lm",
)


@dataclass(frozen=True)
class Modelled:
    """Counts over a whole launch. A race: two threads of a block, one of them writing, with no barrier between."""

    global_requests: int
    sectors: int
    asked_bytes: int
    shared_requests: int
    bank_passes: int
    out_of_bounds: int
    races: int
    diverged_barriers: int

    @property
    def coalescing(self) -> float:
        """Bytes that warps asked for over bytes of the sectors they touched: 1 is ideal. 0 without any access."""
        return self.asked_bytes / (32 * self.sectors) if self.sectors else 0.0

    @property
    def passes_per_request(self) -> float:
        """Passes through the banks of shared memory per request: 1 has no conflicts. 0 without any access."""
        return self.bank_passes / self.shared_requests if self.shared_requests else 0.0


def run(box: Sandbox, source: str, declaration: str, buffers: Mapping[str, tuple[str, int]], launch: str,
        timeout: float = 60.0) -> tuple[str, Modelled | None]:  # fmt: skip
    """Model one launch. Returns the compiler's or the run's complaint (or nothing), and the counts.

    ``declaration`` is that of the kernel, ``buffers`` name to (type, elements), filled with 0, 1, 2, …; ``launch``
    holds grid, block and the call, such as ``"dim3(2), dim3(64), [&] { copy(a, b, 128); }"``. What the kernel computes
    is not looked at, and nothing here withstands a kernel that wants to deceive: it is no grader.
    Raises ``GradingError`` if there is no compiler.
    """
    place = f"/tmp/cuda-{secrets.token_hex(8)}"
    for name in ("cuda_model.h", "cuda_model.cpp"):
        box.write_file(f"{place}/{name}", files(_GUEST).joinpath(name).read_bytes())
    box.write_file(f"{place}/kernel.cu", source.encode())
    box.write_file(f"{place}/main.cpp", _main(declaration, buffers, launch).encode())
    output = b""
    for step in (*_BUILD, "{place}/model"):
        result = box.exec(("/bin/sh", "-c", step.format(place=place)), timeout=timeout, cwd="/", max_output=1 << 16)
        if result.exit_code == _MISSING:
            raise GradingError(f"no g++ in the image {box.spec.image!r}: install a C++ compiler on the machine")
        if not result.ok:
            said = result.stderr.decode(errors="replace")[:2000]
            return f"it took longer than {timeout:g} s" if result.timed_out else said or "it crashed", None
        output = result.stdout
    return "", Modelled(**json.loads(output))


def _main(declaration: str, buffers: Mapping[str, tuple[str, int]], launch: str) -> str:
    lines = ['#include "cuda_model.h"', "#include <functional>", f"{declaration};", "void* model_alloc(size_t);"]
    lines += ["void model_launch(dim3, dim3, std::function<void()>);", "void model_report();", "int main() {"]
    for name, (ctype, count) in buffers.items():
        lines.append(f"auto* {name} = ({ctype}*)model_alloc(sizeof({ctype}) * {count});")
        lines.append(f"for (long i = 0; i < {count}; i++) {name}[i] = i;")
    return "\n".join([*lines, f"model_launch({launch});", "model_report();", "}", ""])
