"""Tools by name: the built-in ones, a dotted path ``module:Class``, or a plugin ``tool.<name>``."""

from __future__ import annotations

from collections.abc import Sequence

from forkgym.envs.base import Tool
from forkgym.errors import ConfigError
from forkgym.registry import resolve

TOOLS = {
    "bash": "forkgym.envs.tools.bash:Bash",
    "view": "forkgym.envs.tools.view:View",
    "edit": "forkgym.envs.tools.edit:Edit",
    "measure": "forkgym.envs.tools.measure:Measure",
    "search": "forkgym.envs.tools.search:Search",
    "submit": "forkgym.envs.tools.submit:Submit",
}


def build(names: Sequence[str | Tool]) -> list[Tool]:
    """One fresh tool per entry; a tool object is taken as it is. Raises ``ConfigError`` for unknown or double names."""
    tools = [resolve("tool", entry, TOOLS)() if isinstance(entry, str) else entry for entry in names]
    found = [tool.name for tool in tools]
    double = sorted({name for name in found if found.count(name) > 1})
    if double:
        raise ConfigError(f"tools named twice: {', '.join(double)}")
    return tools
