"""Energy without a meter: instructions and cache misses of a simulated machine, weighed. A model, and repeatable.

The cache is the same on every machine (``GEOMETRY``), and the program is to be built for ``MARCH``, as valgrind knows
no AVX-512: so one program has one energy. The weights are placeholders of the right order; use ratios, not amounts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from forkgym.sandboxes.base import Sandbox
from forkgym.tasks.errors import GradingError

MARCH = "x86-64-v3"
GEOMETRY = ("--I1=32768,8,64", "--D1=32768,8,64", "--LL=33554432,16,64")
D1_MISS, LL_MISS = 20.0, 200.0
_MISSING = 127
_VALGRIND = 'exec valgrind --tool=callgrind --callgrind-out-file="$0" "$@" >&2'


@dataclass(frozen=True)
class Counts:
    """What one run did inside the function that was counted."""

    instructions: int
    d1_misses: int
    ll_misses: int

    @property
    def energy(self) -> float:
        """Modelled, in units of one instruction."""
        return self.instructions + D1_MISS * self.d1_misses + LL_MISS * self.ll_misses


def count(box: Sandbox, program: str, function: str, place: str, timeout: float = 120.0) -> Counts:
    """Run an executable of the sandbox under callgrind, and count what ``function`` and those it calls do.

    ``place`` is a folder for the output. The function must not be inlined away: build it in a file of its own.
    Raises ``GradingError`` if there is no valgrind, the program fails, or the function is never called.
    """
    out = f"{place}/callgrind.out"
    options = ("--cache-sim=yes", *GEOMETRY, f"--toggle-collect={function}")
    result = box.exec(("/bin/sh", "-c", _VALGRIND, out, *options, program), timeout=timeout, cwd="/")
    if result.exit_code == _MISSING:
        raise GradingError(f"no valgrind in the image {box.spec.image!r}: install the package valgrind on the machine")
    if not result.ok:
        said = result.stderr.decode(errors="replace")[-500:]
        raise GradingError(f"{program} could not be counted (exit code {result.exit_code}): {said}")
    counts = of_callgrind(box.read_file(out).decode(errors="replace"))
    if not counts.instructions:
        raise GradingError(f"{program} never called {function}, or the compiler inlined it")
    return counts


def of_callgrind(text: str) -> Counts:
    """Read the totals of a callgrind output file with cache simulation. Raises ``GradingError`` if there are none."""
    events = re.search(r"^events: (.+)$", text, re.MULTILINE)
    totals = re.search(r"^totals: ([\d ]+)$", text, re.MULTILINE)
    if not events or not totals:
        raise GradingError("this is no output of callgrind, or it was cut off")
    values = [int(word) for word in totals[1].split()]
    names = events[1].split()
    # Callgrind leaves off zeros at the end of a line.
    found = dict(zip(names, values + [0] * (len(names) - len(values)), strict=True))
    if "D1mr" not in found:
        raise GradingError("callgrind ran without --cache-sim=yes")
    misses = {level: sum(found[level + kind] for kind in ("mr", "mw")) for level in ("D1", "DL")}
    return Counts(found["Ir"], misses["D1"], misses["DL"])


def caret(runs: Iterable[tuple[float, float | None, bool]]) -> float:
    """Correctness-adjusted reduction in total energy over (reference's energy, candidate's, correct): at most 1.

    One minus what was spent over what the references spend. A wrong candidate saves nothing: the reference has to run
    after it, so both count; one that has no energy of its own (it does not build) counts as a second reference.
    The published name; how failures are charged is ours. Raises ``ValueError`` without runs.
    """
    needed = spent = 0.0
    for reference, candidate, correct in runs:
        if reference <= 0 or (candidate is None and correct):
            raise ValueError("a reference needs some energy, and a correct candidate has some")
        own = reference if candidate is None else candidate
        needed += reference
        spent += own if correct else own + reference
    if not needed:
        raise ValueError("no runs")
    return 1 - spent / needed
