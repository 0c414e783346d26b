"""What every built task begins with: the tree at one commit, with a history of that commit only."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from git import Repo

from forkgym.tasks.base import Budget, FileChange, Grading, Task
from forkgym.tasks.builders import history
from forkgym.tasks.builders.history import UnfitCommit
from forkgym.tasks.builders.language import Environment, Files, Project
from forkgym.tasks.builders.projects import project_of
from forkgym.tasks.errors import BuildError

# Dates and names are fixed, so that equal bases have equal commits; hooks and settings of the machine have no say.
COMMIT = (
    "export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=base GIT_AUTHOR_EMAIL=base@localhost "
    "GIT_COMMITTER_NAME=base GIT_COMMITTER_EMAIL=base@localhost GIT_AUTHOR_DATE=2020-01-01T00:00:00Z "
    "GIT_COMMITTER_DATE=2020-01-01T00:00:00Z && git init -q -b main . && rm -f .git/hooks/* && "
    "git -c core.autocrlf=false add -A -f . && git commit -q --no-verify -m Base"
)
BUDGET = Budget(turns=60, seconds=1800.0)


def plain_task(
    task_id: str,
    files: Files,
    hidden: Mapping[str, FileChange],
    solution: Mapping[str, FileChange],
    project: Project,
    environment: tuple[str, Environment],
    split: str,
    source: str,
) -> Task:
    """A task that lists no test yet. ``environment`` is the name of its image, and what it was built for."""
    image, needs = environment
    return Task(
        id=task_id,
        family="swe",
        instruction="-",
        split=split,
        files={path: item.data for path, item in files.items() if item.data is not None},
        hidden={path: item.data for path, item in hidden.items() if item.data is not None},
        oracle={path: item.data for path, item in solution.items()},
        grading=Grading(project.runner, (), options=needs.options),
        image=image,
        setup=(COMMIT, *needs.commands),
        env=needs.env,
        budget=BUDGET,
        license=_license(files),
        source=source,
        executables=tuple(path for path, item in files.items() if item.data is not None and item.mode & 0o100),
        links={path: item.link for path, item in files.items() if item.link is not None},
    )


def project_at_head(repo: Repo, source: str) -> tuple[Project, dict[str, FileChange]]:
    """The kind of project that stands at HEAD, and its tree. Raises ``BuildError``, also if there is no test."""
    try:
        files = history.tree(repo.head.commit)
        project = project_of(files)
    except UnfitCommit as error:
        raise BuildError(f"{source}: {error}") from error
    if not any(project.runnable(path) for path in files):
        what = f"a {project.language} repository without a file named as a test of {project.runner}"
        raise BuildError(f"{source}: {what}; tasks are built from its tests")
    return project, files


def name_of(source: str) -> str:
    """What tasks of a repository at this path or URL are called, as part of an id."""
    last = Path(source).resolve().name if "://" not in source else source.rstrip("/").rpartition("/")[2]
    return re.sub(r"[^a-z0-9]+", "-", last.removesuffix(".git").lower()).strip("-") or "repository"


def _license(files: Files) -> str:
    for path in sorted(files):
        if re.fullmatch(r"(LICEN[CS]E|COPYING)(\.\w+)?", path, re.IGNORECASE):
            lines = (files[path].data or b"").decode(errors="replace").split("\n")
            first = next((line.strip() for line in lines if line.strip()), "")
            return f"{path}: {first[:80]}"
    return "not stated in the repository"
