"""Files of many items: JSON, JSON lines, parquet. Each item comes with how messages call its place."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from forkgym.errors import MissingExtraError
from forkgym.tasks.errors import TaskFormatError

KINDS = (".json", ".jsonl", ".parquet")


def items(path: Path, *, keyed: bool = False) -> Iterator[tuple[str, Any]]:
    """(place, item) for each item of the file; with ``keyed``, a JSON object stands for the list of its values.

    Raises ``TaskFormatError`` naming file and line or item, and ``MissingExtraError`` for parquet without pyarrow.
    """
    if path.suffix not in KINDS:
        raise TaskFormatError(f"{path}: give a file that ends in {', '.join(KINDS)}; nothing is fetched by name")
    try:
        if path.suffix == ".parquet":
            listed = _parquet(path)
        elif path.suffix == ".json":
            listed = _list(path, parse(path.read_text("utf-8"), str(path)), keyed)
        else:
            lines = enumerate(path.read_text("utf-8").split("\n"), 1)
            yield from ((f"{path}:{n}", parse(line, f"{path}:{n}")) for n, line in lines if line.strip())
            return
    except OSError as error:
        raise TaskFormatError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise TaskFormatError(f"{path}: not UTF-8 text: {error}") from error
    yield from ((f"{path}: item {number}", item) for number, item in enumerate(listed, 1))


def parse(text: str, place: str) -> Any:
    """JSON. Raises ``TaskFormatError`` naming the place."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TaskFormatError(f"{place}: not valid JSON: {error}") from error


def _list(path: Path, whole: Any, keyed: bool) -> list[Any]:
    if keyed and isinstance(whole, dict):
        return list(whole.values())  # pyright: ignore
    if not isinstance(whole, list):
        raise TaskFormatError(f"{path}: must hold a list" + (", or an object by id" if keyed else ""))
    return whole  # pyright: ignore


def _parquet(path: Path) -> list[Any]:
    try:
        import pyarrow.parquet as parquet  # pyright: ignore
    except ImportError as error:
        raise MissingExtraError(f"{path}: reading parquet needs pyarrow: pip install 'forkgym[swe]'") from error
    try:
        return parquet.read_table(path).to_pylist()  # pyright: ignore
    except (ValueError, OSError) as error:  # pyarrow's ArrowInvalid is a ValueError
        raise TaskFormatError(f"{path}: not a parquet file: {error}") from error
