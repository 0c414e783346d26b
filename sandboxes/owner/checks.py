"""Bad input to a sandbox, refused before anything happens: each error names the field and what is allowed."""

from __future__ import annotations

import math
import os
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, cast

from forkgym.errors import ConfigError
from forkgym.sandboxes.base import Mount, SandboxSpec
from forkgym.sandboxes.limits import parse_limits

_MOST_CHILDREN = 4096  # of one call: many more than a machine holds
_BACKGROUND = ("fail", "kill", "copy")
_OURS = ("/", "/dev", "/proc", "/sys", "/usr")  # mounts of the sandbox itself


def check_spec(spec: SandboxSpec) -> None:
    """Raise ``ConfigError`` for limits, paths and variables that no sandbox can have."""
    if parse_limits(asdict(spec.limits)) != spec.limits:
        raise ConfigError(f"{spec.limits} holds text; give numbers, or a mapping such as {{'memory': '512M'}}")
    _absolute("workdir", spec.workdir)
    check_env(spec.env)
    for mount in spec.mounts:
        if not isinstance(mount, Mount):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(f"mounts hold {_shown(mount)}; give Mount(source, target)")
        _absolute("mount source", mount.source)
        _absolute("mount target", mount.target)
        target = posixpath.normpath(posixpath.join("/", mount.target))
        if target in _OURS or target.startswith(("/dev/", "/proc/", "/sys/")):
            raise ConfigError(f"mount target is {mount.target!r}, which belongs to the sandbox; give another directory")


def check_command(command: str | Sequence[str]) -> None:
    """Raise ``ConfigError`` unless it is text or a sequence of texts."""
    words: Any = command
    sequence = isinstance(words, Sequence) and not isinstance(words, str | bytes)
    if not isinstance(words, str) and not (sequence and _texts(cast("Sequence[object]", words))):
        raise ConfigError(f"command is {_shown(command)}; give text for bash, or a sequence of texts")


def check_env(env: Mapping[str, str] | None) -> None:
    """Raise ``ConfigError`` for what cannot be an environment."""
    given: Any = env
    if given is not None and not isinstance(given, Mapping):
        raise ConfigError(f"env is {_shown(given)}; give a mapping of names to texts")
    for name, value in (env or {}).items():
        if not _texts([name, value]) or not name or "=" in name or not _passable(name + value):
            raise ConfigError(f"env holds {name!r}: {_shown(value)}; give texts without NUL, and a name without '='")


def check_directory(cwd: str | None) -> None:
    """Raise ``ConfigError`` for what cannot be a path."""
    if cwd is not None and (not _texts([cwd]) or not _passable(cwd)):
        raise ConfigError(f"cwd is {cwd!r}; give a path without NUL")


def check_bytes(name: str, data: bytes | None) -> None:
    """Raise ``ConfigError`` unless it is bytes."""
    value: Any = data
    if value is not None and not isinstance(value, bytes | bytearray | memoryview):
        raise ConfigError(f"{name} is {_shown(value)}; give bytes, such as text.encode()")


def check_count(name: str, value: int | None, minimum: int = 0, maximum: int | None = None) -> None:
    """Raise ``ConfigError`` unless it is ``None`` or a whole number within the bounds."""
    given: Any = value
    whole = isinstance(given, int) and not isinstance(given, bool)
    if given is not None and not (whole and minimum <= given and (maximum is None or given <= maximum)):
        bound = f"of at least {minimum}" if maximum is None else f"from {minimum} to {maximum}"
        raise ConfigError(f"{name} is {_shown(value)}; give a whole number {bound}")


def check_timeout(timeout: float) -> None:
    """Raise ``ConfigError`` unless it is a positive number; infinity is one."""
    given: Any = timeout
    number = isinstance(given, int | float) and not isinstance(given, bool)
    if not number or not (0 < given < 1 << 63 or given == math.inf):
        raise ConfigError(f"timeout is {_shown(timeout)}; give a positive number of seconds (below 2**63, or inf)")


def check_path(path: str) -> None:
    """Raise ``ConfigError`` unless it is text; what text no path can be, the kernel says."""
    if not _texts([path]):
        raise ConfigError(f"path is {_shown(path)}; give a text")


def check_text(name: str, value: str) -> None:
    """Raise ``ConfigError`` unless it is text that can be written down."""
    if not _texts([value]) or not _passable(value):
        raise ConfigError(f"{name} is {_shown(value)}; give a text without NUL")


def check_fork(n: int, background: str) -> None:
    """Raise ``ConfigError`` for a number of children or a way with processes that does not exist."""
    check_count("n of fork", n, minimum=1, maximum=_MOST_CHILDREN)
    if background not in _BACKGROUND:
        raise ConfigError(f"background is {background!r}; give one of {', '.join(_BACKGROUND)}")


def _absolute(name: str, path: str) -> None:
    if not _texts([path]) or not path.startswith("/") or not _passable(path):
        raise ConfigError(f"{name} is {_shown(path)}; give an absolute path")


def _passable(text: str) -> bool:
    """True for what the kernel takes: no NUL, and no half of a surrogate pair but those that stand for bytes."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def _texts(values: Sequence[object]) -> bool:
    return all(isinstance(value, str) for value in values)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:70]}..."
