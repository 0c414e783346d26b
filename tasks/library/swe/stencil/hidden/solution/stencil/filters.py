"""What may stand after ``|``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from stencil.markup import UNDEFINED, Safe, escape


def default(value: Any, instead: Any) -> Any:
    return instead if value is UNDEFINED or value is None else value


def join(items: Iterable[Any], between: str = "") -> str:
    parts = list(items)
    if isinstance(between, Safe) or any(isinstance(part, Safe) for part in parts):
        return Safe(str(escape(between)).join(escape(part) for part in parts))
    return str(between).join(map(str, parts))


def replace(value: Any, old: Any, new: Any) -> str:
    if isinstance(value, Safe):
        return Safe(str(value).replace(str(escape(old)), str(escape(new))))
    return str(value).replace(str(old), str(new))


FILTERS: dict[str, Callable[..., Any]] = {
    "upper": lambda value: str(value).upper(),
    "lower": lambda value: str(value).lower(),
    "trim": lambda value: str(value).strip(),
    "default": default,
    "join": join,
    "replace": replace,
    "length": len,
    "safe": lambda value: Safe(str(value)),
}
