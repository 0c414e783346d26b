"""What differs by language: which files are tests, what must be installed, and which tests a file holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from forkgym.sandboxes.base import ExecResult, Sandbox
from forkgym.tasks.base import FileChange
from forkgym.tasks.builders.history import UnfitCommit

Files = Mapping[str, FileChange]
COLLECT_TIMEOUT = 120.0
_DOCUMENTS = (".md", ".rst", ".txt", ".adoc")


@dataclass(frozen=True)
class Environment:
    """What tests need: steps of an image's recipe (none: the machine's own system), and commands run at set-up.

    ``options`` are the runner's; ``env`` is what commands find in the environment.
    """

    steps: tuple[Mapping[str, Any], ...] = ()
    commands: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    env: Mapping[str, str] = field(default_factory=dict[str, str])


class Project(Protocol):
    """How repositories of one language are tested."""

    language: str
    runner: str

    def owns(self, files: Files) -> bool:
        """True if the repository is of this kind."""
        ...

    def is_test(self, path: str) -> bool:
        """True for tests and what only they use."""
        ...

    def is_source(self, path: str) -> bool:
        """True for what a fix must change; asked only of what is no test."""
        ...

    def runnable(self, path: str) -> bool:
        """True for a test file that the runner can be asked for."""
        ...

    def environments(self, files: Files, version: str) -> Iterator[Environment]:
        """What to try, best first. ``version`` is the last release before. Raises ``UnfitCommit``."""
        ...

    def collect(self, box: Sandbox, workdir: str, paths: Sequence[str]) -> list[str]:
        """The ids of the tests in these files, in a sandbox where they stand. Raises ``UnfitCommit``."""
        ...


def is_document(path: str) -> bool:
    """True for what no test runs: it is part neither of what is asked nor of how it is judged."""
    top = path.split("/")[0].lower()
    return top in ("doc", "docs", ".github", "releasenotes", "changelog.d") or (
        "/" not in path and (path.lower().endswith(_DOCUMENTS) or path.startswith("."))
    )


def uncollected(ended: ExecResult) -> UnfitCommit:
    """The error for a run that named no test, with the beginning of what it said."""
    said = (ended.stderr.strip() or ended.stdout.strip()).decode(errors="replace")
    return UnfitCommit("tests not collected", said[:500])
