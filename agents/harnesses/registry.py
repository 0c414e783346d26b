"""Harnesses by name: a short name below, a dotted path ``package.module:HARNESS``, or a plugin ``harness.<name>``."""

from __future__ import annotations

from forkgym.agents.harnesses.base import Harness
from forkgym.errors import ConfigError
from forkgym.registry import resolve

HOST = "@host"  # after a harness's name: it runs here, and only its commands in the sandbox
_ADAPTERS = "forkgym.agents.harnesses.adapters"
HARNESSES = {
    name: f"{_ADAPTERS}.{name.replace('-', '_')}:HARNESS"
    for name in ("mini-swe-agent", "pi", "qwen-code", "opencode", "claude-code", "codex", "gemini-cli", "openhands")
}


def find_harness(name: str) -> Harness:
    """The harness of this name. Raises ``ConfigError``."""
    found = resolve("harness", name, HARNESSES)
    if not isinstance(found, Harness):
        raise ConfigError(f"harness {name!r} is a {type(found).__name__}, not a forkgym.agents.harnesses.base.Harness")
    return found
