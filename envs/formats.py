"""From raw model text to a tool call. A format is a pure function, ``parse(text) -> ToolCall | Malformed``.

Formats are found by name, by dotted path, or as plugins ``format.<name>``. Built in: ``bash``, one fenced command;
``hermes``, JSON between ``<tool_call>`` tags; ``xml``, ``<function=name>`` with ``<parameter=name>`` elements.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, cast

import gymnasium as gym
from gymnasium.utils import RecordConstructorArgs

from forkgym.envs.base import Malformed, ToolCall, Untyped
from forkgym.envs.calls import read_parameters, read_tagged
from forkgym.envs.core import CodingEnv
from forkgym.envs.spaces import UnicodeText
from forkgym.errors import ConfigError
from forkgym.registry import resolve

Parse = Callable[[str], "ToolCall | Malformed"]

FORMATS = {
    "bash": "forkgym.envs.formats:parse_bash",
    "hermes": "forkgym.envs.formats:parse_hermes",
    "xml": "forkgym.envs.formats:parse_xml",
}

MAX_ACTION_CHARS = 1 << 20
_FENCE = re.compile(r"^```(?:bash|sh)[ \t]*\r?\n(.*?)^```[ \t]*\r?$", re.MULTILINE | re.DOTALL)
_OPENING = re.compile(r"^```(?:bash|sh)[ \t]*\r?$", re.MULTILINE)
_HOW = "Answer with exactly one block:\n```bash\ncommand\n```"
_HOW_HERMES = (
    'Answer with exactly one call:\n<tool_call>\n{"name": "bash", "arguments": {"command": "ls"}}\n</tool_call>'
)
_FUNCTION = re.compile(r"<function=([^<>\s]+)>(.*?)</function>", re.DOTALL)
_HOW_XML = "Answer with exactly one call:\n<function=bash>\n<parameter=command>\nls\n</parameter>\n</function>"


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


def parse_hermes(text: str) -> ToolCall | Malformed:
    """The one JSON object ``{"name": ..., "arguments": {...}}`` between ``<tool_call>`` tags."""
    reading = read_tagged(text, strict=True)
    if reading.problem:
        return Malformed(f"The tool_call {reading.problem}. {_HOW_HERMES}")
    if len(reading.calls) != 1:
        return _not_one(len(reading.calls), False, "tool_call", _HOW_HERMES)
    (call,) = reading.calls
    return {"tool": call.name, "arguments": json.loads(call.arguments)}


def parse_xml(text: str) -> ToolCall | Malformed:
    """The one ``<function=name>`` element; a parameter's text loses one newline at each end.

    The format has no types, so each argument is an ``Untyped`` text, which the environment reads as the schema says.
    """
    found: list[tuple[str, str]] = _FUNCTION.findall(text)
    if len(found) != 1:
        return _not_one(len(found), "<function=" in text, "function", _HOW_XML)
    name, body = found[0]
    try:
        values = {key: Untyped(value) for key, value in read_parameters(body).items()}
    except ValueError as error:
        return Malformed(f"The function {name} {error}. {_HOW_XML}")
    return {"tool": name, "arguments": values}


def _not_one(count: int, begun: bool, what: str, how: str) -> Malformed:
    if count > 1:
        return Malformed(f"Found {count} {what} elements; only one call a turn is run, and none was. {how}")
    return Malformed(f"{f'The {what} element is not closed.' if begun else f'Found no {what} element.'} {how}")


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
