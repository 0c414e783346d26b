"""The kinds of projects that tasks can be built from, and which of them a repository is."""

from __future__ import annotations

from forkgym.tasks.builders.compiled import Go, Rust
from forkgym.tasks.builders.history import UnfitCommit
from forkgym.tasks.builders.javascript import Jest, Node, Vitest
from forkgym.tasks.builders.language import Files, Project
from forkgym.tasks.builders.python import Python

# Of two that own as many sources the first: who uses Vitest or Jest does so for all tests.
PROJECTS: tuple[Project, ...] = (Go(), Rust(), Vitest(), Jest(), Node(), Python())


def project_of(files: Files) -> Project:
    """The kind of project that the tree is; of several, the one with the most sources. Raises ``UnfitCommit``."""
    owners = [project for project in PROJECTS if project.owns(files)]
    if owners:
        return max(owners, key=lambda project: sum(map(project.is_source, files)))
    known = ", ".join(dict.fromkeys(project.language for project in PROJECTS))
    raise UnfitCommit("language not supported", f"known: {known}")
