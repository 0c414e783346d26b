"""What an agent changed: captured byte for byte, carried as JSON, applied to a clean sandbox."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from forkgym.sandboxes.base import Sandbox
from forkgym.tasks import tree
from forkgym.tasks.base import FileChange, Submission, Task
from forkgym.tasks.tree import Node, Tree

MAX_CHANGED_BYTES = 60 << 20  # below the headroom of a tree, so that a refusal can name what was left out
MAX_CHANGES = 5000
_CACHES = frozenset(
    {"__pycache__", ".git", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", "node_modules"}
)
_COMPILED_SUFFIXES = (".pyc", ".pyo", ".o", ".a", ".so", ".dylib", ".dll", ".exe", ".class", ".egg")
_COMPILED_MAGIC = (b"\x7fELF", b"!<arch>\n", b"\xca\xfe\xba\xbe", b"\xcf\xfa\xed\xfe", b"MZ\x90\x00")


def capture(box: Sandbox, task: Task, base: Tree) -> Submission:
    """The difference between the task's working directory in ``box`` and ``base``, the tree the agent started from.

    Give a fork of the agent's sandbox: no process of the agent runs there. Contents, executable bits, links and
    deletions count; what is no work of the agent (caches, build products, files untracked at base) is left out with its
    reason. What is too large to be graded is a submission with ``malformed`` set. Raises ``SandboxError`` and
    ``GradingError``.
    """
    try:
        now = tree.read(box, task.workdir, base.size + tree.HEADROOM)
    except (tree.TooLargeError, tree.HostileTreeError) as error:
        return Submission({}, malformed=str(error))
    return compare(base, now, everything=task.submits == "everything")


def compare(base: Tree, now: Tree, *, everything: bool = False) -> Submission:
    """The submission that turns ``base`` into ``now``; with ``everything`` it may hold build products and caches."""
    changes: dict[str, FileChange] = {}
    left_out: dict[str, str] = {}
    for path in sorted(set(base.nodes) | set(now.nodes)):
        old, new = base.nodes.get(path), now.nodes.get(path)
        if (new is None and old is None) or (new is not None and new.same(old)):
            continue
        if reason := _no_file(new) if everything else _not_work(path, old, new, base):
            left_out[path] = reason
        else:
            changes[path] = FileChange(None) if new is None else FileChange(new.data, new.mode, new.link)
    size = sum(len(change.data or b"") for change in changes.values())
    if size > MAX_CHANGED_BYTES or len(changes) > MAX_CHANGES:
        much = f"{len(changes)} changed files with {size} bytes"
        return Submission({}, left_out, f"{much}; at most {MAX_CHANGES} files and {MAX_CHANGED_BYTES} bytes are graded")
    return Submission(changes, left_out)


def apply(box: Sandbox, submission: Submission, workdir: str) -> None:
    """Make the changes in a clean sandbox. Raises ``GradingError`` if it refuses, and ``SandboxError``."""
    tree.write(box, workdir, submission.changes)


def of_files(contents: Mapping[str, bytes | None]) -> Submission:
    """A submission that sets these files; ``None`` deletes one. A task's ``oracle`` is such a mapping."""
    return Submission({path: FileChange(data) for path, data in contents.items()})


def to_json(submission: Submission) -> str:
    """One line of JSON from which ``from_json`` restores every byte."""
    changes = {path: _packed(change) for path, change in submission.changes.items()}
    whole = {"schema": 1, "changes": changes, "left_out": dict(submission.left_out), "malformed": submission.malformed}
    return json.dumps(whole, sort_keys=True)


def digest(submission: Submission) -> str:
    """SHA-256 over what is submitted: paths, contents, links, and whether a file may be run. Hexadecimal."""
    total = hashlib.sha256()
    for path, change in sorted(submission.changes.items()):
        kind = "gone" if change.deleted else "link" if change.data is None else "run" if change.mode & 0o111 else "file"
        content = hashlib.sha256(change.data or (change.link or "").encode("utf-8", "surrogateescape")).hexdigest()
        total.update(json.dumps([path, kind, content]).encode())
    return total.hexdigest()


def from_json(text: str | None) -> Submission:
    """A submission from JSON. Nothing, or blanks, is an empty one; anything unreadable is a malformed one."""
    if text is None or not text.strip():
        return Submission({})
    try:
        whole = json.loads(text)
        if whole["schema"] != 1:
            raise ValueError(f"schema {whole['schema']!r}; this version reads 1")
        changes = {path: _unpacked(path, value) for path, value in whole["changes"].items()}
        return Submission(changes, whole["left_out"], whole["malformed"])
    except (ValueError, KeyError, TypeError, AttributeError, binascii.Error) as error:
        return Submission({}, malformed=f"not a submission: {type(error).__name__}: {error}")


def _packed(change: FileChange) -> dict[str, Any] | None:
    if change.deleted:
        return None
    if change.data is None:
        return {"link": change.link}
    return {"mode": change.mode, "base64": base64.b64encode(change.data).decode()}


def _unpacked(path: str, value: dict[str, Any] | None) -> FileChange:
    if not path or path.startswith("/") or ".." in path.split("/"):
        raise ValueError(f"the path {path!r} leaves the working directory")
    if value is None:
        return FileChange(None)
    if "link" in value:
        return FileChange(None, 0o777, str(value["link"]))
    return FileChange(base64.b64decode(value["base64"], validate=True), int(value["mode"]) & 0o777)


def _not_work(path: str, old: Node | None, new: Node | None, base: Tree) -> str:
    """Why a change is left out; an empty text if it is not."""
    parts = path.split("/")
    if cache := next((part for part in parts if part in _CACHES), None):
        return f"inside {cache}"
    if path in base.untracked:
        return "not part of the repository at the start"
    if reason := _no_file(new):
        return reason
    if new is not None and old is None:
        if path.endswith(_COMPILED_SUFFIXES) or (new.data or b"").startswith(_COMPILED_MAGIC):
            return "a build product"
        if any(directory in base.untracked for directory in _parents(parts)):
            return "below a directory that is not part of the repository"
    return ""


def _no_file(new: Node | None) -> str:
    return "neither a file nor a link" if new is not None and new.kind == "other" else ""


def _parents(parts: list[str]) -> list[str]:
    return ["/".join(parts[:length]) + "/" for length in range(1, len(parts))]
