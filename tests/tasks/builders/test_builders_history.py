"""Reading history: clones of URLs, trees, what one commit changed, and what no task can hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from git import Repo

from forkgym.tasks.base import FileChange
from forkgym.tasks.builders import history
from forkgym.tasks.builders.history import UnfitCommit
from forkgym.tasks.errors import BuildError


def test_a_url_is_cloned_once_and_then_left_alone(repository: Any, tmp_path: Path) -> None:
    origin, clone = tmp_path / "origin", tmp_path / "out/.build/repository"
    repository.git("clone", "-q", "--no-local", ".", str(origin))
    head = history.open_repository(f"file://{origin}", clone).head.commit.hexsha
    assert head == repository.shas["link"]
    repository.git("-C", str(origin), "commit", "-q", "--allow-empty", "-m", "Later")
    assert history.open_repository(f"file://{origin}", clone).head.commit.hexsha == head
    assert Repo(clone).bare


@pytest.mark.parametrize("url", ["file:///host.invalid/nothing", "ext::sh -c 'touch made'", "git@host.invalid:a/b"])
def test_a_url_that_cannot_be_cloned_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BuildError, match=r"cannot be cloned|not a git repository"):
        history.open_repository(url, tmp_path / "out/.build/repository")
    assert list(tmp_path.iterdir()) == []


def test_a_git_directory_without_configuration_is_read(repository: Any, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    repository.git("clone", "-q", "--bare", "--no-local", ".", str(bare))
    (bare / "config").unlink()
    repo = history.open_repository(str(bare), tmp_path / "clone")
    assert repo.head.commit.hexsha == repository.shas["link"]


def test_a_merge_is_one_change_with_all_that_was_said(repository: Any) -> None:
    repo = history.open_repository(str(repository.path), Path("unused"))
    merge = repo.commit(repository.shas["merge"])
    assert history.changed_paths(merge) == ["tally/clock.py", "tests/test_clock.py"]
    fix = history.read(merge)
    assert set(fix.changed) == {"tally/clock.py", "tests/test_clock.py"}
    assert fix.message.split("\n\n")[1:] == ["Test of a minute and a second", "Seconds have two digits"]
    assert fix.before["run.sh"] == FileChange(b"#!/bin/sh\nexec python3 -m tally\n", 0o755)
    assert fix.before["mean"] == FileChange(None, 0o777, "tally/mean.py")
    assert [sha for sha in repository.shas.values() if sha in [c.hexsha for c in history.commits(repo, 4)]] == [
        repository.shas[name] for name in ("merge", "rename", "test only", "link")
    ]


def test_the_version_is_that_of_the_newest_tag_before(repository: Any) -> None:
    repo = history.open_repository(str(repository.path), Path("unused"))
    assert history.version_before(repo.commit(repository.shas["mean"])) == "1.0"
    repository.git("tag", "-d", "v1.0")
    try:
        assert history.version_before(repo.commit(repository.shas["mean"])) == "0.1"
    finally:
        repository.git("tag", "v1.0", repository.shas["first"])


def test_submodules_and_lost_objects_are_named(repository: Any, another: Any, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    git = repository.git
    git("clone", "-q", "--no-local", ".", str(clone))
    git("-C", str(clone), "update-index", "--add", "--cacheinfo", f"160000,{repository.shas['first']},sub")
    git("-C", str(clone), "commit", "-q", "-m", "Module")
    repo = history.open_repository(str(clone), Path("unused"))
    with pytest.raises(UnfitCommit, match="submodule: sub"):
        history.read(repo.head.commit)
    another.write({"a.py": "a = 1\n"})
    another.save("first", "First")
    another.write({"a.py": "a = 2\n"})
    another.save("second", "Second")
    blob = another.git("rev-parse", "HEAD^:a.py")
    (another.path / ".git/objects" / blob[:2] / blob[2:]).unlink()
    with pytest.raises(UnfitCommit, match="objects missing"):
        history.read(history.open_repository(str(another.path), Path("unused")).head.commit)
