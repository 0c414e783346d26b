"""Limits of a sandbox: read from plain values, and the part of them that resource limits can hold.

Sizes may be written as text with a binary suffix: ``512M``, ``1.5GiB``, ``64k``.
"""

from __future__ import annotations

import math
import re
import resource
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from forkgym.errors import ConfigError
from forkgym.registry import unknown
from forkgym.sandboxes.base import Limits

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(?:I?B)?\s*", re.IGNORECASE)
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
# The first process, a shell and its control descriptors (62 and 63) need this much to start at all.
_MINIMUM = {"memory": 16 << 20, "pids": 8, "cpu": 0.01, "disk": 1 << 20, "open_files": 96, "wall": 0.1}
_MAXIMUM = {"pids": 4 << 20}  # Linux has no more process ids, and its control groups refuse more
_MEANING = {
    "memory": 'bytes or text such as "512M"',
    "pids": "a whole number of processes",
    "cpu": "a number of cores such as 0.5",
    "disk": 'bytes or text such as "512M"',
    "open_files": "a whole number of files per process",
    "wall": "a number of seconds",
}


def parse_size(value: object) -> int:
    """Bytes from a whole number or from text such as ``512M`` or ``1.5 GiB`` (1K = 1024). Raises ``ValueError``."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"not a size: {value!r}")
    return int(float(match[1]) * _UNITS[match[2].upper()])


def parse_limits(values: Mapping[str, object]) -> Limits:
    """``Limits`` from a plain mapping, such as a table of a TOML file; absent keys keep their defaults.

    ``None`` or ``"none"`` lifts a limit. Raises ``ConfigError`` for an unknown key and for a value that is not a
    finite number of at least the minimum.
    """
    if not isinstance(values, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError(f'limits are {values!r}; give a mapping such as {{"memory": "512M"}}, or Limits')
    known = [field.name for field in fields(Limits)]
    parsed: dict[str, Any] = {}
    for key, value in values.items():
        if key not in known:
            raise ConfigError(unknown("limit", key, known))
        parsed[key] = None if value is None or value == "none" else _number(key, value)
    return Limits(**parsed)


def rlimits(limits: Limits, cgroups: bool) -> dict[str, int]:
    """Values for ``resource.RLIMIT_<key>`` of a sandbox's first process, never above the present hard limits.

    ``cgroups`` says that a control group holds memory and processes. Without one, ``DATA`` bounds the private memory
    of each process (unlike ``AS`` it leaves the address space that runtimes such as V8 only reserve alone), and
    ``NPROC`` bounds the processes of the sandbox's uid: set it after the last user namespace was made, because Linux
    counts per namespace since 5.14 and holds the namespace's parent to the value its creator had.
    """
    wanted = {"CORE": 0, "NOFILE": limits.open_files, "FSIZE": limits.disk}
    if not cgroups:
        wanted |= {"DATA": limits.memory, "NPROC": limits.pids}
    return {name: _capped(name, value) for name, value in wanted.items() if value is not None}


def _number(key: str, value: object) -> int | float:
    minimum, maximum = _MINIMUM[key], _MAXIMUM.get(key, (1 << 62) - 1)
    bounds = f"at least {minimum}" + (f", at most {maximum}" if key in _MAXIMUM else "")
    problem = f"limit {key!r} is {value!r}; allowed: {_MEANING[key]}, {bounds}, or none"
    try:
        number = _READERS[key](value)
    except (ValueError, OverflowError) as error:
        raise ConfigError(problem) from error
    if not minimum <= number <= maximum:
        raise ConfigError(problem)
    return number


def _whole(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ValueError(f"not a whole number: {value!r}")


def _real(value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    raise ValueError(f"not a finite number: {value!r}")


_READERS: dict[str, Callable[[object], int | float]] = {
    "memory": parse_size,
    "pids": _whole,
    "cpu": _real,
    "disk": parse_size,
    "open_files": _whole,
    "wall": _real,
}


def _capped(name: str, value: int) -> int:
    hard = resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))[1]
    return value if hard == resource.RLIM_INFINITY else min(value, hard)
