"""``load``: from a pattern, a path or tasks to a ``TaskSet``."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from importlib.resources import files
from pathlib import Path

from forkgym.sandboxes.base import StrPath
from forkgym.tasks.base import Task
from forkgym.tasks.errors import TaskFormatError, TaskNotFoundError
from forkgym.tasks.folder import IGNORED_DIRECTORIES, TASK_FILE, TaskFolder
from forkgym.tasks.taskset import Entry, TaskSet, not_found

Spec = StrPath | Task | TaskSet | Iterable["Spec"]


def load(spec: Spec, *, split: str | None = None) -> TaskSet:
    """The tasks that ``spec`` names, in a stable order; ``split`` keeps one split of them.

    ``spec`` is a pattern over the bundled library (``swe/tiny/*``; a ``*`` also matches slashes, and the id of a family
    stands for all its variants), the path of a task folder or of a folder that holds some, a pattern of such paths
    (``mytasks/*``), a ``Task``, a ``TaskSet``, or a list of any of these. Task files are read when a task is taken out
    of the set.

    Raises ``TaskNotFoundError`` if nothing matches or the split is empty, and ``TaskFormatError`` for a malformed task
    and for two tasks with one id.
    """
    entries: dict[str, Entry] = {}
    for entry in _entries(spec):
        if entry.id in entries and entries[entry.id] is not entry:
            raise TaskFormatError(f"two tasks have the id {entry.id!r}; give one of them another 'id' in {TASK_FILE}")
        entries[entry.id] = entry
    found = TaskSet(entries.values())
    if split is None:
        return found
    if not len(found.only(split)):
        known = ", ".join(sorted(set(found.splits))) or "none"
        raise TaskNotFoundError(f"no task of {_named(spec)} is in the split {split!r}; splits there: {known}")
    return found.only(split)


def library_root() -> Path:
    """The folder of the bundled tasks, in a checkout or in an installed wheel."""
    return Path(str(files("forkgym.tasks") / "library"))


def folders(root: Path, beginning: str = "") -> list[TaskFolder]:
    """All task folders in ``root``, itself included, by path; the relative path stands in for a missing ``id``.

    ``beginning`` leaves out, unread, those whose relative path can hold no task whose id begins so.
    """
    found: list[TaskFolder] = []
    for folder, names, present in os.walk(root):
        relative = Path(folder).relative_to(root).as_posix()
        if not (relative + "/").startswith(beginning) and not beginning.startswith(relative + "/") and relative != ".":
            names.clear()
            continue
        if TASK_FILE in present:
            found.append(TaskFolder(Path(folder), relative if relative != "." else root.resolve().name))
            names.clear()
        # What a builder has at work stands in a hidden folder.
        names[:] = sorted(name for name in names if name not in IGNORED_DIRECTORIES and not name.startswith("."))
    return found


def _named(spec: Spec) -> str:
    """For messages: never the contents of a task."""
    return (
        repr(spec.id)
        if isinstance(spec, Task)
        else repr(spec)
        if isinstance(spec, str | os.PathLike)
        else "those given"
    )


def _entries(spec: Spec) -> Iterator[Entry]:
    if isinstance(spec, Task):
        yield Entry(spec.id, spec.split, lambda: spec)
    elif isinstance(spec, TaskSet):
        yield from spec.entries
    elif isinstance(spec, str):
        yield from _matching(spec)
    elif isinstance(spec, os.PathLike):
        yield from _below(Path(os.fspath(spec)))
    else:
        for part in spec:
            yield from _entries(part)


def _matching(pattern: str) -> list[Entry]:
    wanted = pattern.rstrip("/")
    beginning = re.split(r"[*?[]", wanted)[0]
    found = [e for e in _library(beginning) if fnmatchcase(e.id, pattern) or (wanted and e.id.startswith(wanted + "/"))]
    if found:
        return found
    if os.path.exists(pattern):
        return _below(Path(pattern))
    if globbed := _globbed(pattern):
        return globbed
    ids = [entry.id for entry in _library("")]
    raise TaskNotFoundError(f"{not_found(pattern, ids)}. It is no path here either")


def _globbed(pattern: str) -> list[Entry]:
    """Tasks in folders whose path matches, such as ``mytasks/*``."""
    parts = Path(pattern).parts
    plain = next((index for index, part in enumerate(parts) if set(part) & set("*?[")), len(parts))
    root = Path(*parts[:plain])
    if plain in (0, len(parts)) or not root.is_dir():
        return []
    found = [folder for folder in folders(root) if fnmatchcase(str(folder.path), str(Path(pattern)))]
    return [entry for folder in found for entry in _of_folder(folder)]


def _below(root: Path) -> list[Entry]:
    if not root.is_dir():
        raise TaskNotFoundError(f"{root} is no folder; give a task folder, or a folder that holds some")
    found = [entry for folder in folders(root) for entry in _of_folder(folder)]
    if not found:
        raise TaskNotFoundError(f"no {TASK_FILE} in {root} or below")
    return found


@functools.cache
def _library(beginning: str) -> tuple[Entry, ...]:
    """The bundled tasks whose ids may begin so; their ids are their paths."""
    return tuple(entry for folder in folders(library_root(), beginning) for entry in _of_folder(folder))


def _of_folder(folder: TaskFolder) -> list[Entry]:
    return [
        Entry(task_id, split, functools.partial(folder.build, index), folder)
        for index, (task_id, split) in enumerate(folder.entries)
    ]
