"""What a runner of hidden tests reports. A runner gets a clean sandbox, the task, and what was submitted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from forkgym.sandboxes.base import Sandbox
from forkgym.tasks.base import Submission, Task


@dataclass(frozen=True)
class Record:
    """One test that ran. ``seconds`` is its wall time."""

    passed: bool
    message: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Report:
    """Test id to its own record; a test without one was not run.

    ``hacks`` are detected attempts to forge a result. ``broken`` says why the records prove nothing as a whole, such as
    an exit code that contradicts them. ``dropped`` maps what was not taken from the submission to the reason.
    ``score`` in [0, 1] is that of a runner that does not only know passed and failed; ``components`` name its parts.
    """

    records: Mapping[str, Record]
    timed_out: bool = False
    hacks: tuple[str, ...] = ()
    broken: str = ""
    dropped: Mapping[str, str] = field(default_factory=dict[str, str])
    notes: tuple[str, ...] = field(default_factory=tuple[str, ...])
    score: float | None = None
    components: Mapping[str, float] = field(default_factory=dict[str, float])


Runner = Callable[[Sandbox, Task, Submission], Report]
