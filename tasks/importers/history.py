"""A repository at one commit, without its future: the commit and its ancestors as one file, made by git."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

from forkgym.tasks.errors import TaskFormatError

BUNDLE = "base.bundle"
_BRANCH = "refs/heads/main"
UNPACK = (
    f"git init -q -b main . && git fetch -q {BUNDLE} {_BRANCH} && git reset -q --hard FETCH_HEAD"
    f" && rm -f {BUNDLE} .git/FETCH_HEAD && rm -rf .git/logs"
)
"""Run in the folder that holds the bundle: leaves the work tree at the commit, no remote, no other ref, no reflog."""


def find_clone(root: Path, repo: str, place: str) -> Path:
    """The clone of ``owner/name`` below ``root``. Raises ``TaskFormatError``, naming the ``place`` of the row."""
    tried = [root / repo, root / repo.replace("/", "__"), root / repo.rpartition("/")[2]]
    for path in tried:
        if path.is_dir():
            return path
    raise TaskFormatError(f"{place}: repo: no clone of {repo}; looked for {', '.join(map(str, tried))}")


def bundle(clone: Path, commit: str, place: str) -> bytes:
    """The commit and its ancestors. The clone is only read. Raises ``TaskFormatError``, naming the row's ``place``."""
    with tempfile.TemporaryDirectory(prefix="forkgym-bundle-") as folder:
        if problem := _git("clone", "--quiet", "--bare", "--shared", "--no-tags", str(clone), folder):
            raise TaskFormatError(f"{place}: repo: cannot read the clone {clone}: {problem}")
        if _git("-C", folder, "update-ref", _BRANCH, f"{commit}^{{commit}}"):
            raise TaskFormatError(f"{place}: base_commit: {clone} has no commit {commit}; fetch it there")
        if problem := _git("-C", folder, "bundle", "create", "--quiet", f"{folder}/{BUNDLE}", _BRANCH):
            raise TaskFormatError(f"{place}: cannot pack {clone} at {commit}: {problem}")
        return Path(folder, BUNDLE).read_bytes()


def _git(*arguments: str) -> str:
    """Run git; an empty text, or why it failed. The user's configuration and the clone's hooks decide nothing."""
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C"}
    # One thread: the same commit gives the same bytes, and so the task the same digest.
    settings = ("-c", "safe.directory=*", "-c", "core.hooksPath=/dev/null", "-c", "pack.threads=1")
    result = subprocess.run(("git", *settings, *arguments), capture_output=True, env=environment, check=False)
    return result.stderr.decode(errors="replace").strip()[-400:] or "failed" if result.returncode else ""
