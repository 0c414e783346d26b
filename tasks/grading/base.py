"""What a runner of hidden tests reports. A runner gets a clean sandbox with the submission, and the task."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from forkgym.sandboxes.base import Sandbox
from forkgym.tasks.base import Task


@dataclass(frozen=True)
class Record:
    """One test that ran. ``seconds`` is its wall time."""

    passed: bool
    message: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Report:
    """Test id to its own record; a test without one was not run. ``hacks`` are detected attempts to forge a result."""

    records: Mapping[str, Record]
    timed_out: bool = False
    hacks: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default_factory=tuple[str, ...])


Runner = Callable[[Sandbox, Task], Report]
