"""Isolated machines that run commands, hold files, and fork: ``with create("local") as box: box.exec("make test")``."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any, Literal
from urllib.parse import parse_qsl

from forkgym.errors import ConfigError
from forkgym.registry import resolve
from forkgym.sandboxes.base import Backend, ExecResult, Limits, Mount, Sandbox, SandboxSpec, Shell, Snapshot, Usage
from forkgym.sandboxes.limits import parse_limits

BACKENDS = {
    "local": "forkgym.sandboxes.local.backend:LocalBackend",
    "docker": "forkgym.sandboxes.docker.backend:DockerBackend",
}
_EXTRAS = {"docker": "docker"}


def backend(name: str, **options: Any) -> Backend:
    """The backend of this name, dotted path or plugin, made with its ``options``. Raises ``ConfigError``.

    Where there is only room for a name, options follow it: ``docker?url=tcp://host:2376&spares=0``.
    """
    name, _, query = name.partition("?")
    options = {**_options(name, query), **options}
    make = resolve("backend", name, BACKENDS, _EXTRAS)
    try:
        inspect.signature(make).bind(**options)
    except TypeError as error:
        raise ConfigError(f"backend {name!r}: {error}; it takes {inspect.signature(make)}") from error
    return make(**options)


def _options(name: str, query: str) -> dict[str, str | int]:
    try:
        given = parse_qsl(query, strict_parsing=bool(query), keep_blank_values=True)
    except ValueError as error:
        raise ConfigError(f"backend {name!r}: {query!r} is not option=value&option=value") from error
    return {key: int(value) if value.isdecimal() else value for key, value in given}


def create(
    backend: str = "local",
    *,
    image: str | None = None,
    limits: Limits | Mapping[str, object] | None = None,
    snapshot: str | None = None,
    env: Mapping[str, str] | None = None,
    workdir: str = "/work",
    mounts: Iterable[Mount] = (),
    network: Literal["none"] = "none",
    user: str = "agent",
) -> Sandbox:
    """A new sandbox, or one that starts in the state of the snapshot with this id.

    ``image`` is "host" if it is not given; a snapshot has its own, so both together are refused. ``limits`` are
    ``Limits`` or a mapping that ``parse_limits`` reads. ``workdir`` is absolute; commands start there.
    Raises ``ConfigError`` for a wrong option and ``SandboxError`` for what the machine cannot do.
    """
    for name, value in (("backend", backend), ("image", image), ("snapshot", snapshot)):
        if value is not None and not isinstance(value, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(f"{name} is {value!r}; give a text")
    if network != "none":
        raise ConfigError(f"network is {network!r}; only 'none' exists")
    if not workdir.startswith("/"):
        raise ConfigError(f"workdir is {workdir!r}; give an absolute path")
    if snapshot is not None and image is not None:
        raise ConfigError(f"image is {image!r}, but a snapshot has an image of its own; leave one of them out")
    parsed = limits if isinstance(limits, Limits) else parse_limits(limits or {})
    image = "host" if image is None else image
    spec = SandboxSpec(image, parsed, network, user, workdir, dict(env or {}), tuple(mounts))
    return _backend(backend).create(spec, snapshot)


_backend = backend  # `create` has an option of that name

__all__ = [
    "Backend",
    "ExecResult",
    "Limits",
    "Mount",
    "Sandbox",
    "SandboxSpec",
    "Shell",
    "Snapshot",
    "Usage",
    "backend",
    "create",
]
