"""What a repository's history offers: commits that change sources and tests together, and the trees around them.

Only reads: no work tree is made, nothing of the repository is executed. A merge counts as one change against its first
parent, so that a branch that was merged is one candidate, with the messages of its commits.
"""

from __future__ import annotations

import re
import shutil
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from git import Blob, Commit, GitCommandError, Repo, Submodule
from git.exc import InvalidGitRepositoryError, NoSuchPathError, ODBError, UnsafeProtocolError

from forkgym.tasks.base import FileChange
from forkgym.tasks.errors import BuildError

MAX_TREE_BYTES = 32 << 20
MAX_TREE_FILES = 5000
_URL = re.compile(r"^([a-z][a-z0-9+.-]*://|[\w.-]+@[\w.-]+:)")
_LINK, _EXECUTABLE = 0o120000, 0o100755


class UnfitCommit(Exception):
    """A commit that can't become a task. ``reason`` is one of a small set, to be counted; ``detail`` says more."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason, self.detail = reason, detail


@dataclass(frozen=True)
class Fix:
    """One commit against its first parent. ``changed`` maps paths to their new content; ``None`` deletes."""

    sha: str
    parent: str
    date: str
    message: str
    before: Mapping[str, FileChange]
    changed: Mapping[str, FileChange]

    @property
    def after(self) -> dict[str, FileChange]:
        """The whole tree after the commit."""
        return {path: change for path, change in {**self.before, **self.changed}.items() if not change.deleted}


def open_repository(source: str, clone: Path) -> Repo:
    """The repository at a path, or of the one at a URL a bare clone at ``clone``, which stays as it is once it is made.

    Raises ``BuildError`` if there is none, and if it has no commit.
    """
    path = Path(source)
    if _URL.match(source) or _bare_without_config(path):
        path = _clone(source, clone)
    try:
        repo = Repo(path)
        repo.git.rev_parse("--verify", "HEAD^{commit}")
    except (InvalidGitRepositoryError, NoSuchPathError) as error:
        raise BuildError(f"{source}: not a git repository") from error
    except GitCommandError as error:
        raise BuildError(f"{source}: its HEAD names no commit: {str(error.stderr).strip()[-500:]}") from error
    return repo


def _bare_without_config(path: Path) -> bool:
    """Git reads such a directory; GitPython takes it for a work tree's."""
    return (path / "HEAD").is_file() and (path / "objects").is_dir() and not (path / "config").exists()


def commits(repo: Repo, limit: int) -> Iterator[Commit]:
    """The newest ``limit`` commits of HEAD's first-parent line, newest first."""
    yield from repo.iter_commits("HEAD", max_count=limit, first_parent=True)


def changed_paths(commit: Commit) -> list[str]:
    """Paths that the commit changes against its first parent; a rename is a path that goes and one that comes.

    Raises ``UnfitCommit`` for the first commit.
    """
    if not commit.parents:
        raise UnfitCommit("first commit")
    diff = commit.parents[0].diff(commit, no_renames=True)
    return sorted({str(path) for entry in diff for path in (entry.a_path, entry.b_path) if path})


def read(commit: Commit) -> Fix:
    """The commit with the trees around it. Raises ``UnfitCommit`` for what no task can hold."""
    try:
        before, after = tree(commit.parents[0]), tree(commit)
    except (ODBError, ValueError, KeyError) as error:
        raise UnfitCommit("objects missing", str(error)[:200]) from error
    gone = {path: FileChange(None) for path in before if path not in after}
    new = {path: change for path, change in after.items() if before.get(path) != change}
    date = commit.committed_datetime.astimezone().date().isoformat()
    return Fix(commit.hexsha, commit.parents[0].hexsha, date, _message(commit), before, {**gone, **new})


def version_before(commit: Commit) -> str:
    """The version that the newest tag before the commit names, such as ``1.4.0``; "0.1" if none does."""
    try:
        described = str(commit.repo.git.describe("--tags", "--abbrev=0", commit.parents[0].hexsha))
    except GitCommandError:
        return "0.1"
    found = re.search(r"\d+(\.\d+)+", described)
    return found.group() if found else "0.1"


def tree(commit: Commit) -> dict[str, FileChange]:
    """Every file and link of a commit. Raises ``UnfitCommit`` for a submodule and for too much."""
    found: dict[str, FileChange] = {}
    size = 0
    for item in commit.tree.traverse():
        if isinstance(item, Submodule):
            raise UnfitCommit("submodule", str(item.path))
        if not isinstance(item, Blob):
            continue
        size += item.size
        if size > MAX_TREE_BYTES or len(found) >= MAX_TREE_FILES:
            raise UnfitCommit("repository too large", f"more than {MAX_TREE_BYTES} bytes or {MAX_TREE_FILES} files")
        data = cast("bytes", item.data_stream.read())
        if item.mode == _LINK:
            found[str(item.path)] = FileChange(None, 0o777, data.decode("utf-8", "surrogateescape"))
        else:
            found[str(item.path)] = FileChange(data, 0o755 if item.mode == _EXECUTABLE else 0o644)
    return found


def _message(commit: Commit) -> str:
    texts = [_text(commit)]
    if len(commit.parents) == 2:
        merged = commit.repo.iter_commits(f"{commit.parents[0].hexsha}..{commit.parents[1].hexsha}", max_count=20)
        texts += [_text(part) for part in merged if len(part.parents) < 2]
    return "\n\n".join(texts)


def _text(commit: Commit) -> str:
    message = commit.message
    return (message.decode(errors="replace") if isinstance(message, bytes) else message).strip()


def _clone(url: str, target: Path) -> Path:
    if target.is_dir():
        return target
    made = [folder for folder in (target.parent, target.parent.parent) if not folder.exists()]
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = target.with_name(f".{uuid.uuid4().hex}")
    try:
        Repo.clone_from(url, scratch, bare=True)
        scratch.rename(target)
    except (GitCommandError, UnsafeProtocolError, OSError) as error:
        shutil.rmtree(scratch, ignore_errors=True)
        for folder in made:
            folder.rmdir()
        raise BuildError(f"{url}: cannot be cloned: {str(error).strip()[-500:]}") from error
    return target
