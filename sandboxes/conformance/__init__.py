"""The contract of ``forkgym.sandboxes.base``, and attacks, as cases that any backend can be run through.

``check(backend)`` prints a line per case and returns what passed; ``suite="torture"`` attacks. Each case states the
values it expects; they follow from the contract, not from a backend.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from forkgym.errors import ConfigError
from forkgym.registry import unknown
from forkgym.sandboxes.base import Backend
from forkgym.sandboxes.conformance import commands, files, forks, shells, torture, walls
from forkgym.sandboxes.conformance.expect import Case, Mismatch

CASES: tuple[Case, ...] = (*commands.CASES, *shells.CASES, *files.CASES, *forks.CASES, *walls.CASES)
TORTURE = torture.CASES
SUITES: Mapping[str, tuple[Case, ...]] = {"contract": CASES, "torture": TORTURE}


@dataclass(frozen=True)
class Report:
    """Names of the cases that passed, and what went wrong in each other one."""

    passed: tuple[str, ...]
    failed: Mapping[str, str]

    @property
    def ok(self) -> bool:
        """True if no case failed."""
        return not self.failed


def check(
    backend: Backend,
    names: Sequence[str] = (),
    echo: Callable[[str], object] | None = None,
    *,
    suite: str = "contract",
) -> Report:
    """Run the named cases of a suite (default: all) and report each in a line. ``ConfigError`` for a wrong name."""
    if suite not in SUITES:
        raise ConfigError(unknown("conformance suite", suite, SUITES))
    cases = SUITES[suite]
    known = {case.name: case for case in cases}
    for name in names:
        if name not in known:
            raise ConfigError(unknown("conformance case", name, known))
    passed: list[str] = []
    failed: dict[str, str] = {}
    for case in [known[name] for name in names] or cases:
        start = time.monotonic()
        try:
            case.run(backend)
        except Exception as error:  # whatever a backend does wrong is the finding
            failed[case.name] = str(error) if isinstance(error, Mismatch) else f"{type(error).__name__}: {error}"
            line = f"FAIL  {case.name}: {failed[case.name]}"
        else:
            passed.append(case.name)
            line = f"ok    {case.name} ({time.monotonic() - start:.2f} s)"
        (echo or _print)(line)
    return Report(tuple(passed), failed)


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
