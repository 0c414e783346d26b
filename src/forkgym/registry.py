"""Components found by a string: a room's short name, a dotted path ``package.module:Name``, or a plugin.

A plugin is an entry point of the group ``forkgym.plugins`` named ``<kind>.<name>``, for example ``backend.k8s``.
Kinds are backend, runner, tool, reward, format, policy, chat-format, agent and strategy.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any

from forkgym.errors import ConfigError, MissingExtraError

PLUGIN_GROUP = "forkgym.plugins"


def resolve(kind: str, name: str, table: Mapping[str, str], extras: Mapping[str, str] | None = None) -> Any:
    """Import and return the component ``name`` of this ``kind``.

    ``table`` maps short names to ``module:Name``. ``extras`` maps short names to the extra that brings their
    dependency. Raises ``ConfigError`` for an unknown name and ``MissingExtraError`` for an absent dependency.
    """
    path = table.get(name) or _plugin(kind, name)
    if path is None:
        if ":" not in name:
            raise ConfigError(unknown(kind, name, table))
        path = name
    module, _, attribute = path.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        if error.name and (module == error.name or module.startswith(error.name + ".")):
            raise ConfigError(f"{kind} {name!r}: no module {error.name!r}; write package.module:Name") from error
        extra = (extras or {}).get(name)
        hint = f"pip install 'forkgym[{extra}]'" if extra else f"pip install {error.name}"
        raise MissingExtraError(f"{kind} {name!r} needs the package {error.name!r}: {hint}") from error
    except AttributeError as error:
        raise ConfigError(f"{kind} {name!r}: module {module!r} has no {attribute!r}") from error


def unknown(kind: str, name: object, known: Mapping[str, Any] | list[str]) -> str:
    """The message for an unknown name: what is known, and the nearest spelling."""
    names = sorted(known)
    near = difflib.get_close_matches(str(name), names, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    return f"unknown {kind} {name!r}{hint} Known: {', '.join(names) or 'none'}"


def _plugin(kind: str, name: str) -> str | None:
    for point in entry_points(group=PLUGIN_GROUP):
        if point.name == f"{kind.replace(' ', '-')}.{name}":
            return point.value
    return None
