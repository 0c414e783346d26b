"""The digest of a task: equal exactly when agents see the same thing and are judged the same way."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forkgym.tasks.base import Task

# What a task is called, where it comes from and what was measured about it change nothing for agent or grader.
NOT_JUDGED = frozenset({"id", "family", "split", "license", "source", "origin", "proof"})
# Younger than the first proofs: at these values they say nothing, so that those proofs stay fresh.
_YOUNGER: dict[str, Any] = {
    "solve": "",
    "user": "agent",
    "env": {},
    "submits": "sources",
    "executables": (),
    "links": {},
    "wall": None,
}


def task_digest(task: Task) -> str:
    """SHA-256, as hex, over all fields of the task that decide what is seen and how it is judged.

    Raises ``TypeError`` for a parameter or option that is no plain data.
    """
    judged = {name: _plain(value) for name, value in _telling(task).items() if name not in NOT_JUDGED}
    text = json.dumps(judged, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _telling(owner: Any) -> dict[str, Any]:
    values = {f.name: getattr(owner, f.name) for f in fields(owner)}
    return {name: value for name, value in values.items() if name not in _YOUNGER or _YOUNGER[name] != value}


def _plain(value: Any) -> Any:
    """``value`` as JSON, where different values stay different: bytes become their own digest under a tag."""
    if isinstance(value, bytes):
        return {"sha256": hashlib.sha256(value).hexdigest()}
    if is_dataclass(value):
        return {name: _plain(item) for name, item in _telling(value).items()}
    if isinstance(value, Mapping):
        return {"map": [[_plain(key), _plain(item)] for key, item in sorted(value.items())]}  # pyright: ignore
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]  # pyright: ignore
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"a task holds {type(value).__name__} where plain data is needed: {value!r}")
