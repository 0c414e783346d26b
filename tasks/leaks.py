"""Does an agent's sandbox hold the answer? Asked on a clean sandbox, before any agent works there."""

from __future__ import annotations

import re
from collections.abc import Iterator

from forkgym.sandboxes.base import Sandbox
from forkgym.tasks import tree
from forkgym.tasks.base import Task
from forkgym.tasks.tree import HostileTreeError, TooLargeError

SCANNED = ("/tmp", "/var/tmp", "/home", "/root", "/opt", "/srv", "/mnt")
CEILING = 1 << 30
_READABLE = 'for d; do if [ -d "$d" ] && [ -r "$d" ] && [ -x "$d" ]; then echo "$d"; fi; done'
# Shorter lines, and those that only bring names in, say nothing: any program may hold them.
TELLING_LINE = 20
_COMMON = re.compile(rb"(import|from|use|using|package|#include|const \w+ = require)\b")


# Where an imported task keeps what its image is made of: the agent finds these files in the image.
_OF_IMAGE = "environment/"


class _GitError(Exception):
    """Git cannot read the repository."""


def find(box: Sandbox, task: Task) -> list[str]:
    """One sentence for each place where hidden tests or the solution can be read; none is what should come back.

    Looked at: the working directory, writable directories, the environment, and the git history where there is one.
    Raises ``SandboxError`` and ``GradingError``.
    """
    found: list[str] = []
    needles = _needles(task)
    there = box.exec(("/bin/sh", "-c", _READABLE, "sh", *SCANNED), cwd="/").stdout.decode().split()
    # A repository's own folder is left out of its parent's tree.
    inside = (f"{task.workdir}/.git",) if box.exec(("/usr/bin/test", "-d", ".git"), cwd=task.workdir).ok else ()
    for directory in (task.workdir, *inside, *there):
        try:
            nodes = tree.read(box, directory, CEILING).nodes
        except (TooLargeError, HostileTreeError) as error:
            found.append(f"{directory} could not be searched: {error}")
            continue
        for path, node in nodes.items():
            found.extend(f"{what} in {directory}/{path}" for what in _held(node.data or b"", needles))
    found.extend(f"{what} in the environment" for what in _held(box.exec(("/usr/bin/env",)).stdout, needles))
    try:
        found += _history(box, task.workdir)
    except _GitError as error:
        found.append(str(error))
    return found


def _needles(task: Task) -> dict[bytes, str]:
    """Telling text to what it is. What the agent is meant to see, as a line or as part of one, tells nothing."""
    image = (data for path, data in task.origin.items() if path.startswith(_OF_IMAGE))
    shown = b"\n".join((*task.files.values(), *image, task.instruction.encode()))
    whole = {f"solution {path}": data for path, data in task.oracle.items() if data}
    whole |= {f"hidden file {path}": data for path, data in task.hidden.items() if data}
    needles: dict[bytes, str] = {}
    for what, data in whole.items():
        if data not in shown:  # a file that was only moved is there before
            needles[data] = what
        for line in _added(data) if what.endswith((".patch", ".diff")) else data.splitlines():
            text = line.strip()
            if len(text) >= TELLING_LINE and not _COMMON.match(text) and text not in shown:
                needles[text] = f"a line of {what}"
    return needles


def _added(patch: bytes) -> list[bytes]:
    """The lines that a patch adds: its other lines stand in the sandbox, as they should."""
    return [line[1:] for line in patch.splitlines() if line.startswith(b"+") and not line.startswith(b"+++ ")]


def _held(data: bytes, needles: dict[bytes, str]) -> set[str]:
    return {what for needle, what in needles.items() if needle in data}


def _history(box: Sandbox, workdir: str) -> Iterator[str]:
    """Later commits, other branches, remotes and objects that no branch holds: the fix is often among them."""
    if not box.exec(("/usr/bin/test", "-e", ".git"), cwd=workdir).ok:
        return
    questions = {
        "the git history holds commits that are no ancestors of HEAD": (
            "rev-list",
            "--all",
            "--reflog",
            "--not",
            "HEAD",
        ),
        "the git repository names a remote": ("remote",),
        "the git repository holds stashed work": ("stash", "list"),
        "the git repository holds unreachable objects": ("fsck", "--unreachable", "--no-reflogs", "--no-progress"),
    }
    for problem, arguments in questions.items():
        if _git(box, workdir, *arguments):
            yield problem
    # Whatever keeps them, a tag of a file or another repository's store: the agent can read them.
    present = _git(box, workdir, "cat-file", "--batch-all-objects", "--batch-check=%(objectname)", "--unordered")
    reachable = _git(box, workdir, "rev-list", "--objects", "--no-object-names", "HEAD")
    if set(present.split()) - set(reachable.split()):
        yield "the git repository holds objects that are not part of HEAD and its ancestors"


def _git(box: Sandbox, workdir: str, *arguments: str) -> str:
    """What git says, without blanks around it."""
    command = ("git", "-c", f"safe.directory={workdir}", *arguments)
    result = box.exec(command, cwd=workdir, timeout=120.0, max_output=None)
    if not result.ok:
        raise _GitError(f"git {arguments[0]} failed in {workdir}: {result.stderr.decode(errors='replace')[-300:]}")
    return result.stdout.decode().strip()
