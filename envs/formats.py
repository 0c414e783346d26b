"""From raw model text to a tool call. A format is a pure function, ``parse(text) -> ToolCall | Malformed``.

Formats are found by name, by dotted path, or as plugins ``format.<name>``. Built in: ``bash``, one fenced command.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, cast

import gymnasium as gym
from gymnasium.utils import RecordConstructorArgs

from forkgym.envs.base import Malformed, ToolCall
from forkgym.envs.core import CodingEnv
from forkgym.envs.spaces import UnicodeText
from forkgym.errors import ConfigError
from forkgym.registry import resolve

Parse = Callable[[str], "ToolCall | Malformed"]

FORMATS = {"bash": "forkgym.envs.formats:parse_bash"}

MAX_ACTION_CHARS = 1 << 20
_FENCE = re.compile(r"^```(?:bash|sh)[ \t]*\r?\n(.*?)^```[ \t]*\r?$", re.MULTILINE | re.DOTALL)
_OPENING = re.compile(r"^```(?:bash|sh)[ \t]*\r?$", re.MULTILINE)
_HOW = "Answer with exactly one block:\n```bash\ncommand\n```"


def parse_bash(text: str) -> ToolCall | Malformed:
    """The one command between "```bash" and "```"; the command ``submit`` alone is the submit tool."""
    blocks: list[str] = _FENCE.findall(text)
    if len(blocks) > 1:
        return Malformed(f"Found {len(blocks)} bash blocks; only one command a turn is run, and none was. {_HOW}")
    if not blocks:
        cause = "The bash block is not closed." if _OPENING.search(text) else "Found no bash block."
        return Malformed(f"{cause} {_HOW}")
    command = blocks[0].strip()
    if not command:
        return Malformed(f"The bash block is empty. {_HOW}")
    if command == "submit":
        return {"tool": "submit", "arguments": {}}
    return {"tool": "bash", "arguments": {"command": command}}


def build(name: str) -> Parse:
    """The parser of this name."""
    return resolve("format", name, FORMATS)


class TextActions(gym.Wrapper[dict[str, str], str, dict[str, str], ToolCall], RecordConstructorArgs):
    """Takes raw model text as the action. Text that is no call in this format is answered with what was wrong."""

    def __init__(self, env: gym.Env[dict[str, str], ToolCall], format: str = "bash") -> None:
        RecordConstructorArgs.__init__(self, format=format)
        gym.Wrapper.__init__(self, env)  # pyright: ignore[reportUnknownMemberType]
        if not isinstance(env.unwrapped, CodingEnv):
            raise ConfigError(f"TextActions wraps a CodingEnv, not {type(env.unwrapped).__name__}")
        self._format = format
        self._parse = build(format)
        self.action_space = UnicodeText(MAX_ACTION_CHARS)

    def step(self, action: str) -> tuple[dict[str, str], Any, bool, bool, dict[str, Any]]:
        """Parse and act."""
        valid = self.action_space.contains(action)
        call = (
            self._parse(action)
            if valid
            else Malformed(f"The action is not text of at most {MAX_ACTION_CHARS} characters.")
        )
        return self.env.step(cast("Any", call))  # CodingEnv answers what is malformed

    def fork(self, n: int = 1) -> list[TextActions]:
        """``n`` forks of the environment, each in this wrapper; wrappers between the two are left out."""
        base = self.env.unwrapped
        assert isinstance(base, CodingEnv)
        return [TextActions(child, self._format) for child in base.fork(n)]
