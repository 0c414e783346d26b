"""Refusing what an environment does not know, before anything is started."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from forkgym.errors import ConfigError
from forkgym.registry import unknown
from forkgym.tasks.base import Budget

RESET_OPTIONS = ["task"]


def refuse_unknown(constructor: Any, extra: Mapping[str, object]) -> None:
    """Raise ``ConfigError`` for an option that ``constructor`` does not name, with the nearest that it does."""
    if extra:
        kinds = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
        known = [p.name for p in inspect.signature(constructor).parameters.values() if p.kind not in kinds]
        raise ConfigError(unknown("environment option", next(iter(extra)), known))


def reset_task(options: Mapping[str, Any] | None) -> str | None:
    """The task id that ``reset(options=...)`` asks for. Raises ``ConfigError`` for any other option."""
    for name in options or {}:
        if name not in RESET_OPTIONS:
            raise ConfigError(unknown("reset option", name, RESET_OPTIONS))
    task = (options or {}).get("task")
    if task is not None and not isinstance(task, str):
        raise ConfigError(f"reset option 'task' is a task id, got {task!r}")
    return task


def check_choice(name: str, value: object, allowed: list[Any]) -> None:
    """Raise ``ConfigError`` unless ``value`` is one of ``allowed``."""
    if value not in allowed:
        raise ConfigError(unknown(name, value, [str(choice) for choice in allowed]))


def check_positive(name: str, value: object, *, whole: bool = True) -> None:
    """Raise ``ConfigError`` unless ``value`` is ``None`` or a positive number below 2**63, by default a whole one."""
    kinds = int if whole else (int, float)
    if value is not None and (isinstance(value, bool) or not isinstance(value, kinds) or not 0 < value < 1 << 63):
        raise ConfigError(f"{name} must be a positive {'whole ' if whole else ''}number or None, got {value!r}")


def override(budget: Budget, turns: int | None, seconds: float | None, tokens: int | None) -> Budget:
    """The task's budget, with what the user set instead of it."""
    return Budget(
        turns=budget.turns if turns is None else turns,
        seconds=budget.seconds if seconds is None else seconds,
        tokens=budget.tokens if tokens is None else tokens,
    )
