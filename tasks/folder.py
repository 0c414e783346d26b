"""A task folder on disk: ``task.yaml``, ``files/`` (what the agent sees), ``hidden/`` (tests, and ``solution/``).

A whole repository stands in ``files.tar.gz`` instead of ``files/``: it may hold executables and symbolic links.

An imported task also has ``origin/``: what its first format says beyond that, for the way back.

Under ``variants`` the folder is a family: the agent of a variant sees ``files/`` and the solution with the variant's
edits applied, and the variant's reference solution is the content of the edited files before the edits.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from forkgym.sandboxes.yamltext import Document
from forkgym.tasks import archive
from forkgym.tasks.base import FileChange, Task
from forkgym.tasks.errors import TaskFormatError
from forkgym.tasks.schema import TaskModel, VariantModel, read_model

TASK_FILE = "task.yaml"
ARCHIVE = "files.tar.gz"
PROOF_FILE = "proof.json"
SOLUTION = "solution"
ORIGIN = "origin"
IGNORED_DIRECTORIES = frozenset({"__pycache__", ".git"})
IGNORED_SUFFIXES = (".pyc", ".pyo")


class TaskFolder:
    """The tasks of one folder. ``task.yaml`` is read at once, the files when a task is built.

    Raises ``TaskFormatError`` for anything malformed and for symbolic links.
    """

    def __init__(self, path: Path, default_id: str) -> None:
        self.path = path
        self.model, self._document = _read_yaml(path)
        self.id = self.model.id or default_id

    @property
    def entries(self) -> list[tuple[str, str]]:
        """(task id, split) of each task, in the order of the file."""
        if self.model.variants is None:
            return [(self.id, str(self.model.split))]
        return [(f"{self.id}/{variant.id}", variant.split) for variant in self.model.variants]

    def build(self, index: int) -> Task:
        """The task at this place of ``entries``."""
        if self.model.variants is None:
            return self._task(self.id, str(self.model.instruction), str(self.model.split), self._plain, {})
        variant = self.model.variants[index]
        contents = self._variant(index, variant)
        return self._task(f"{self.id}/{variant.id}", variant.instruction, variant.split, contents, variant.params)

    def write_proofs(self, fresh: Mapping[str, Mapping[str, Any]]) -> Path:
        """Store what was measured, by task id; the folder's other tasks keep what is said of them. Returns the file."""
        known = {task_id: self._proofs[task_id] for task_id, _ in self.entries if task_id in self._proofs}
        path = self.path / PROOF_FILE
        text = json.dumps({"schema": 1, "tasks": {**known, **fresh}}, indent=1, sort_keys=True)
        # At once: a loader beside us sees the old proof or the new one, never a part.
        fresh_file = path.with_name(f".{PROOF_FILE}.{os.getpid()}.{threading.get_ident()}")
        try:
            fresh_file.write_text(text + "\n")
            os.replace(fresh_file, path)
        finally:
            fresh_file.unlink(missing_ok=True)
        del self._proofs
        return path

    @cached_property
    def hidden(self) -> Mapping[str, bytes]:
        """The hidden tests and what belongs to them; without the solution."""
        inside = read_tree(self.path / "hidden")
        return {path: data for path, data in inside.items() if not path.startswith(SOLUTION + "/")}

    @cached_property
    def solution(self) -> Mapping[str, bytes]:
        """The reference solution's files."""
        return read_tree(self.path / "hidden" / SOLUTION)

    @cached_property
    def _archive(self) -> Mapping[str, FileChange]:
        path = self.path / ARCHIVE
        if not path.is_file():
            return {}
        if (self.path / "files").exists():
            raise self._error(f"holds both files/ and {ARCHIVE}; keep one of them")
        return archive.read(path)

    @cached_property
    def _files(self) -> Mapping[str, bytes]:
        if self._archive:
            return {path: item.data for path, item in self._archive.items() if item.data is not None}
        return read_tree(self.path / "files")

    @cached_property
    def _proofs(self) -> Mapping[str, Any]:
        path = self.path / PROOF_FILE
        if not path.is_file():
            return {}
        try:
            tasks = json.loads(path.read_bytes())["tasks"]
            return {str(key): dict(value) for key, value in tasks.items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise TaskFormatError(f"{path}: not a proof ({error}); write it anew: forkgym tasks verify") from error

    @property
    def _plain(self) -> tuple[Mapping[str, bytes], Mapping[str, bytes | None]]:
        if self.model.solve:
            return self._files, self.solution
        for path in self.model.removed:
            if path not in self._files or path in self.solution:
                raise self._document.error(("removed",), f"{path!r} must be in files/ and not in hidden/solution/")
        changed: dict[str, bytes | None] = dict.fromkeys(self.model.removed)
        changed |= {path: data for path, data in self.solution.items() if self._files.get(path) != data}
        if not changed:
            raise self._error("hidden/solution: must hold at least one file that differs from files/")
        return self._files, changed

    def _variant(self, index: int, variant: VariantModel) -> tuple[Mapping[str, bytes], Mapping[str, bytes]]:
        if both := sorted(set(self._files) & set(self.solution)):
            raise self._error(
                f"{both[0]}: stands in files/ and in hidden/solution/; a family takes it from the solution"
            )
        broken = dict(self.solution)
        for place, edit in enumerate(variant.edits):
            where = ("variants", index, "edits", place)
            if edit.file not in broken:
                raise self._document.error((*where, "file"), f"hidden/solution/ has no {edit.file!r}")
            count = broken[edit.file].count(edit.find.encode())
            if count != 1:
                raise self._document.error((*where, "find"), f"occurs {count} times in {edit.file}; must be once")
            broken[edit.file] = broken[edit.file].replace(edit.find.encode(), edit.replace.encode())
        changed = {path: data for path, data in self.solution.items() if broken[path] != data}
        if not changed:
            raise self._document.error(("variants", index, "edits"), "change nothing")
        return {**self._files, **broken}, changed

    def _task(
        self,
        task_id: str,
        instruction: str,
        split: str,
        contents: tuple[Mapping[str, bytes], Mapping[str, bytes | None]],
        params: Mapping[str, Any],
    ) -> Task:
        files, oracle = contents
        if leaked := sorted(path for path, data in self.hidden.items() if files.get(path) == data):
            raise self._error(f"hidden/{leaked[0]}: the agent would see this file, because files/ holds it too")
        model = self.model
        return Task(
            id=task_id,
            family=model.family,
            instruction=instruction.strip(),
            split=split,
            files=files,
            hidden=self.hidden,
            oracle=oracle,
            grading=model.build_grading(),
            image=model.image,
            workdir=model.workdir,
            setup=tuple(model.setup),
            solve=model.solve,
            user=model.user,
            env=model.env,
            submits=model.submits,
            tools=model.build_tools(),
            limits=model.build_limits(),
            budget=model.budget.build(),
            network=model.network,
            params={**model.params, **params},
            license=model.license,
            source=model.source,
            origin=read_tree(self.path / ORIGIN),
            proof=self._proofs.get(task_id, {}),
            executables=tuple(path for path, item in self._archive.items() if item.link is None and item.mode & 0o100),
            links={path: item.link for path, item in self._archive.items() if item.link is not None},
        )

    def _error(self, message: str) -> TaskFormatError:
        return TaskFormatError(f"{self.path}: {message}")


def read_tree(root: Path) -> dict[str, bytes]:
    """All regular files under ``root`` by relative path, in stable order; absent is empty. Links are refused."""
    found: dict[str, bytes] = {}
    for folder, names, files in os.walk(root, onerror=_raise_unless_absent):
        names[:] = sorted(name for name in names if name not in IGNORED_DIRECTORIES)
        for name in sorted([*files, *names]):
            path = Path(folder, name)
            if path.is_symlink():
                raise TaskFormatError(f"{path}: a symbolic link; task folders hold plain files only")
            if path.is_dir() or name.endswith(IGNORED_SUFFIXES):
                continue
            if not path.is_file():
                raise TaskFormatError(f"{path}: not a regular file")
            found[path.relative_to(root).as_posix()] = path.read_bytes()
    return found


def _raise_unless_absent(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def _read_yaml(folder: Path) -> tuple[TaskModel, Document]:
    path = folder / TASK_FILE
    for part in (folder / "files", folder / "hidden", folder / "hidden" / SOLUTION, path):
        if part.is_symlink():
            raise TaskFormatError(f"{part}: a symbolic link; task folders hold plain files only")
    try:
        return read_model(path.read_text("utf-8"), str(path))
    except UnicodeDecodeError as error:
        raise TaskFormatError(f"{path}:1: not UTF-8 text: {error}") from error
