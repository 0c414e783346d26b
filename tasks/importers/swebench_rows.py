"""Rows of a SWE-bench data set as tasks. The package ``swebench`` (5.x, extra ``swe``) knows how each row is judged.

A row is what the public data sets hold: JSON, JSON lines or parquet, with ``eval_script``, ``log_parser`` and ``image``
in it. Rows of data sets made for swebench before 5 do not say how their tests run, and are refused.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from forkgym.errors import MissingExtraError
from forkgym.sandboxes.base import Limits, StrPath
from forkgym.tasks.base import Budget, Grading, Task
from forkgym.tasks.errors import TaskFormatError
from forkgym.tasks.importers import history, rowfiles
from forkgym.tasks.taskset import Entry, TaskSet

WORKDIR = "/testbed"  # where the images of SWE-bench hold the repository
LIMITS = Limits(memory=8 << 30, pids=4096, disk=16 << 30, open_files=65536)
TIMEOUT = 1800.0
ASSETS = ".swebench-assets"
_TEXTS = ("instance_id", "repo", "base_commit", "problem_statement", "patch", "version", "image", "eval_script")
_NAMES = ("log_parser", "eval_type")
_LISTS = ("FAIL_TO_PASS", "PASS_TO_PASS")
_OLD = "; rows for swebench before 5 do not say how their tests run: take the present version of the data set"
# What the grader needs; all else of the row is kept in the task's ``origin``.
JUDGED = ("instance_id", "repo", "version", "image", "eval_script", *_NAMES, *_LISTS)
_PLAIN = {"instance_id": r"[A-Za-z0-9][A-Za-z0-9._-]*", "repo": r"[\w.-]+/[\w.-]+", "base_commit": r"[0-9a-f]{7,64}"}


@dataclass(frozen=True)
class Row:
    """A checked row. ``tests`` are FAIL_TO_PASS, then PASS_TO_PASS, each id once."""

    place: str
    data: Mapping[str, Any]
    fail_to_pass: tuple[str, ...]
    pass_to_pass: tuple[str, ...]
    assets: tuple[str, ...]

    @property
    def id(self) -> str:
        return str(self.data["instance_id"])

    @property
    def tests(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.fail_to_pass, *self.pass_to_pass)))


def from_swebench(
    rows: StrPath | Iterable[Mapping[str, Any]],
    *,
    image: str | None = None,
    repositories: StrPath | None = None,
    assets: StrPath | None = None,
    split: str = "test",
    timeout: float = TIMEOUT,
) -> TaskSet:
    """The rows of a file (JSON, JSON lines, parquet), or the rows given, as tasks with the runner ``swebench``.

    Without more, a task works in the row's own Docker image. With ``image`` and ``repositories`` it works in that image
    of ours, where the repository comes from a clone below ``repositories`` (``owner/name`` or ``owner__name``) and
    holds the base commit and its ancestors only. ``assets`` holds binary files that a patch cannot carry, as
    ``<instance_id>/test_assets/<path>``, which is how a task repository of swebench keeps them.
    ``timeout`` is seconds for one run of the tests.

    Raises ``TaskFormatError`` (row and field) and ``MissingExtraError``; a task whose commit or asset is missing raises
    it when it is taken out of the set.
    """
    return tasks_of_rows(
        read_rows(rows), image=image, repositories=repositories, assets=assets, split=split, timeout=timeout
    )


def tasks_of_rows(
    rows: Iterable[Row],
    *,
    image: str | None = None,
    repositories: StrPath | None = None,
    assets: StrPath | None = None,
    split: str = "test",
    timeout: float = TIMEOUT,
) -> TaskSet:
    """As ``from_swebench``, of rows that are checked already."""
    if (image is None) != (repositories is None):
        raise TaskFormatError("give image and repositories together: ours holds no repository, theirs holds its own")

    def entry(row: Row) -> Entry:
        return Entry(row.id.lower(), split, lambda: _task(row, image, repositories, assets, split, timeout))

    return TaskSet([entry(row) for row in rows])


def read_rows(rows: StrPath | Iterable[Mapping[str, Any]]) -> list[Row]:
    """The rows, checked, in their order. Raises ``TaskFormatError`` and ``MissingExtraError``."""
    found = [_checked(place, data) for place, data in _placed(rows)]
    seen: dict[str, Row] = {}
    for row in found:
        other = seen.setdefault(row.id.lower(), row)
        if other is not row:
            raise TaskFormatError(f"{row.place}: instance_id: {row.id!r} is also that of {other.place}")
    if not found:
        raise TaskFormatError(f"{rows if isinstance(rows, str | os.PathLike) else 'what was given'}: holds no row")
    return found


def require_swebench() -> Any:
    """The package ``swebench.harness`` with what is used of it. Raises ``MissingExtraError`` without version 5."""
    try:
        for module in ("grading", "infra_failure", "run_evaluation", "utils"):  # brings docker and datasets: seconds
            import_module(f"swebench.harness.{module}")
        return import_module("swebench.harness")
    except ImportError as error:
        raise MissingExtraError(f"SWE-bench needs swebench 5 ({error}): pip install 'forkgym[swe]'") from error


def patch_command(path: str) -> str:
    """A shell command that applies the patch in the file ``path``, in the way and the order that swebench tries."""
    attempts = [f"{command} {path}" for command in require_swebench().run_evaluation.GIT_APPLY_CMDS]
    clean = "{ git checkout -- . ; git clean -fd ; } >/dev/null 2>&1"
    tried = f" || {{ {clean} ; ".join(attempts) + " ; }" * (len(attempts) - 1)
    return f"{tried} || git apply --check --reverse {path}"


def _task(
    row: Row, image: str | None, repositories: StrPath | None, assets: StrPath | None, split: str, timeout: float
) -> Task:
    files: dict[str, bytes] = {}
    setup: tuple[str, ...] = ()
    if repositories is not None:
        clone = history.find_clone(Path(repositories), str(row.data["repo"]), row.place)
        files = {history.BUNDLE: history.bundle(clone, str(row.data["base_commit"]), row.place)}
        setup = (history.UNPACK,)
    return Task(
        id=row.id.lower(),
        family="swebench",
        instruction=str(row.data["problem_statement"]).strip(),
        split=split,
        files=files,
        hidden={f"{ASSETS}/{path}": _asset(row, path, assets) for path in row.assets},
        oracle={"gold.patch": str(row.data["patch"]).encode()},
        solve=patch_command("/solution/gold.patch"),
        grading=Grading("swebench", row.tests, timeout, {key: row.data[key] for key in JUDGED} | _lists(row)),
        image=image or str(row.data["image"]),
        workdir=WORKDIR,
        setup=setup,
        user="root",
        limits=LIMITS,
        budget=Budget(turns=100, seconds=3600.0),
        license=f"that of the repository {row.data['repo']}",
        source=f"SWE-bench row {row.id}",
        origin={"row.json": json.dumps(dict(row.data), ensure_ascii=False, indent=1, default=str).encode()},
    )


def _lists(row: Row) -> dict[str, list[str]]:
    return {"FAIL_TO_PASS": list(row.fail_to_pass), "PASS_TO_PASS": list(row.pass_to_pass)}


def _placed(rows: StrPath | Iterable[Mapping[str, Any]]) -> Iterable[tuple[str, Any]]:
    """Each row with how messages call its place."""
    if isinstance(rows, str | os.PathLike):
        return rowfiles.items(Path(rows))
    return ((f"row {number}", row) for number, row in enumerate(rows, 1))


def _checked(place: str, data: Any) -> Row:
    if not isinstance(data, Mapping):
        raise TaskFormatError(f"{place}: must be an object with fields such as instance_id, not {type(data).__name__}")
    name = data.get("instance_id")  # pyright: ignore
    if isinstance(name, str):
        place = f"{place} ({name[:80]})"
    for field in (*_TEXTS, *_NAMES):
        _text(place, data, field)  # pyright: ignore
    for field, pattern in _PLAIN.items():
        if not re.fullmatch(pattern, data[field]) or ".." in data[field]:  # pyright: ignore
            raise TaskFormatError(f"{place}: {field}: {data[field]!r} is no plain name")
    _known(place, data)  # pyright: ignore
    first, second = (_names(place, data, field) for field in _LISTS)  # pyright: ignore
    if not first and not second:
        raise TaskFormatError(f"{place}: FAIL_TO_PASS and PASS_TO_PASS: both are empty, so nothing grades this row")
    return Row(place, data, first, second, _assets(place, data))  # pyright: ignore


def _text(place: str, data: Mapping[str, Any], field: str) -> None:
    if data.get(field) is None:
        old = field in ("eval_script", "image", *_NAMES)
        raise TaskFormatError(f"{place}: {field}: this field is missing{_OLD if old else ''}")
    if not isinstance(data[field], str) or not data[field].strip():
        raise TaskFormatError(f"{place}: {field}: must be a text that is not empty, not {data[field]!r:.80}")


def _known(place: str, data: Mapping[str, Any]) -> None:
    """What the package itself must know: parser, kind of evaluation, and the marks around the tests' output."""
    harness = require_swebench()
    parsers, kinds = harness.log_parsers.PARSER_REGISTRY, [kind.value for kind in harness.constants.EvalType]
    if data["log_parser"] not in parsers:
        raise TaskFormatError(f"{place}: log_parser: swebench has no {data['log_parser']!r}")
    if data["eval_type"] not in kinds:
        raise TaskFormatError(f"{place}: eval_type: must be one of {', '.join(kinds)}, not {data['eval_type']!r}")
    for mark in (harness.constants.START_TEST_OUTPUT, harness.constants.END_TEST_OUTPUT):
        if mark not in data["eval_script"]:
            raise TaskFormatError(f"{place}: eval_script: lacks the mark {mark!r}, so its output cannot be read")


def _names(place: str, data: Mapping[str, Any], field: str) -> tuple[str, ...]:
    value = data.get(field)
    if value is None:
        raise TaskFormatError(f"{place}: {field}: this field is missing")
    if isinstance(value, str):
        value = rowfiles.parse(value, f"{place}: {field}")
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):  # pyright: ignore
        raise TaskFormatError(f"{place}: {field}: must be a list of test ids, or JSON of one")
    return tuple(value)  # pyright: ignore


def _assets(place: str, data: Mapping[str, Any]) -> tuple[str, ...]:
    """Paths of binary files that stand beside the test patch and the solution."""
    value: Any = data.get("image_assets") or {}
    if isinstance(value, str):
        value = rowfiles.parse(value, f"{place}: image_assets")
    paths: list[str] = []
    try:
        for kind in ("test_patch", "patch"):
            listed: list[Any] = value.get(kind) or []
            paths += [str(item["path"]) for item in listed if item.get("path")]
    except (AttributeError, TypeError) as error:
        raise TaskFormatError(f"{place}: image_assets: must map patches to lists of {{path, url}}") from error
    for path in paths:
        if path.startswith("/") or ".." in path.split("/") or "\0" in path:
            raise TaskFormatError(f"{place}: image_assets: the path {path!r} leaves the repository")
    return tuple(dict.fromkeys(paths))


def _asset(row: Row, path: str, assets: StrPath | None) -> bytes:
    place = None if assets is None else Path(assets) / row.id / "test_assets" / path
    if place is None or not place.is_file():
        where = "give assets=FOLDER" if place is None else f"there is no {place}"
        raise TaskFormatError(f"{row.place}: needs the binary file {path}, which only a URL holds; {where}")
    return place.read_bytes()
