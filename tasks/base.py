"""What is asked and how it is judged, as data.

A ``Task`` is read from a folder: ``task.yaml``, ``files/`` (what the agent sees) and ``hidden/`` (tests, solution),
which is never placed where an agent can read. A ``Verdict`` is the answer of a grader to a ``Submission``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Literal

from forkgym.sandboxes.base import Limits
from forkgym.tasks.digest import task_digest

SOLUTION = "/solution"
Stage = Literal["resolved", "unresolved", "empty", "malformed", "timeout", "error"]


@dataclass(frozen=True)
class Budget:
    """What one episode may use; ``None`` is no limit. ``seconds`` counts wall time since reset."""

    turns: int | None = 30
    seconds: float | None = 600.0
    tokens: int | None = None


@dataclass(frozen=True)
class Grading:
    """How a submission is judged: a named ``runner``, the test ids that must each pass, and the runner's options."""

    runner: str
    tests: tuple[str, ...]
    timeout: float = 60.0
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class Task:
    """One task. ``files``, ``hidden`` and ``oracle`` map paths relative to ``workdir`` to contents.

    ``oracle`` holds the files of the reference solution; ``None`` deletes the path. With ``solve`` the solution is a
    program instead: the files of ``oracle`` are placed below ``SOLUTION``, and the command ``solve`` runs in
    ``workdir``.
    ``proof`` is what ``forkgym tasks verify`` wrote: oracle score, do-nothing score and flake rate.
    ``executables`` are those of ``files`` that may be run; ``links`` maps symbolic links to their targets.
    ``user`` is who works and who grades, ``env`` what their commands find in the environment. ``submits`` says whether
    build products and caches are work, too.
    ``origin`` is what another format says beyond this, kept as it was for the way back; nobody reads it here.
    """

    id: str
    family: str
    instruction: str
    split: str
    files: Mapping[str, bytes]
    hidden: Mapping[str, bytes]
    oracle: Mapping[str, bytes | None]
    grading: Grading
    image: str = "host"
    workdir: str = "/work"
    setup: tuple[str, ...] = ()
    solve: str = ""
    user: str = "agent"
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    submits: Literal["sources", "everything"] = "sources"
    tools: tuple[str, ...] = ("bash", "view", "edit", "submit")
    limits: Limits = field(default_factory=Limits)
    budget: Budget = field(default_factory=Budget)
    network: Literal["none"] = "none"
    params: Mapping[str, Any] = field(default_factory=dict[str, Any])
    license: str = ""
    source: str = ""
    origin: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    proof: Mapping[str, Any] = field(default_factory=dict[str, Any])
    executables: tuple[str, ...] = ()
    links: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def start(self) -> dict[str, FileChange]:
        """What stands in ``workdir`` before the set-up commands: contents, permissions and links."""
        modes = dict.fromkeys(self.executables, 0o755)
        placed = {path: FileChange(data, modes.get(path, 0o644)) for path, data in self.files.items()}
        return placed | {path: FileChange(None, 0o777, target) for path, target in self.links.items()}

    @cached_property
    def digest(self) -> str:
        """SHA-256 over all that decides what the agent sees and how it is judged; keys cached base snapshots."""
        return task_digest(self)


@dataclass(frozen=True)
class FileChange:
    """One changed path: new ``data`` and permission bits, or a link target, or (both ``None``) a deletion."""

    data: bytes | None
    mode: int = 0o644
    link: str | None = None

    @property
    def deleted(self) -> bool:
        return self.data is None and self.link is None


@dataclass(frozen=True)
class Submission:
    """What the agent changed against the base, byte-exact. ``left_out`` maps ignored paths to the reason.

    ``malformed`` says why nothing can be graded, for example because the change is too large.
    """

    changes: Mapping[str, FileChange]
    left_out: Mapping[str, str] = field(default_factory=dict[str, str])
    malformed: str = ""

    @property
    def empty(self) -> bool:
        return not self.changes and not self.malformed


@dataclass(frozen=True)
class Finding:
    """One graded item, for example a hidden test. ``span`` is (file, first line, last line) where known."""

    id: str
    passed: bool
    weight: float = 1.0
    message: str = ""
    span: tuple[str, int, int] | None = None


@dataclass(frozen=True)
class Verdict:
    """A grader's answer. ``score`` lies in [0, 1]; it is ``None`` exactly when ``error`` is set (infrastructure).

    ``stage`` is the class of the outcome; ``components`` names partial scores; ``hacks`` lists detected attempts to
    forge the grade, which put the score at 0; ``provenance`` says who graded what (task digest, runner, seconds).
    """

    score: float | None
    resolved: bool
    stage: Stage
    components: Mapping[str, float] = field(default_factory=dict[str, float])
    findings: tuple[Finding, ...] = ()
    hacks: tuple[str, ...] = ()
    error: str | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        if (self.score is None) != (self.error is not None):
            raise ValueError("a verdict has either a score or an error")
        if self.score is not None and not 0.0 <= self.score <= 1.0:
            raise ValueError(f"score {self.score!r} is outside [0, 1]")

    @property
    def disproved(self) -> str:
        """Why the run proves nothing as a whole, such as an exit code that contradicts its records; else empty."""
        return next((item.message for item in self.findings if item.id == "run" and not item.weight), "")

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self)
