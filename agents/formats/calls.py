"""How model families write tool calls: as pieces of a conversation, and read from what was sampled."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from forkgym.agents.base import Call
from forkgym.agents.formats.chat import Layout

HERMES_TAGS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")


def hermes_section(tools: Sequence[Mapping[str, Any]]) -> list[str]:
    """What Hermes and Qwen models are told of their tools, as in the templates they were trained with."""
    pieces: list[str] = [
        Layout(
            "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
            "You are provided with function signatures within <tools></tools> XML tags:\n<tools>"
        )
    ]
    for tool in tools:
        pieces += ["\n", json.dumps(tool, ensure_ascii=False)]
    how = (
        "\n</tools>\n\nFor each function call, return a json object with function name and arguments within "
        "<tool_call></tool_call> XML tags:\n"
        '<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
    )
    return [*pieces, Layout(how)]


def write_hermes(calls: Sequence[Call]) -> list[str]:
    """Each call as JSON between ``<tool_call>`` tags, one below the other."""
    pieces: list[str] = []
    for call in calls:
        pieces += [Layout("\n<tool_call>\n" if pieces else "<tool_call>\n"), *_members(call, "arguments")]
        pieces.append(Layout("\n</tool_call>"))
    return pieces


def _members(call: Call, key: str) -> list[str]:
    return ['{"name": ', json.dumps(call.name, ensure_ascii=False), f', "{key}": ', call.arguments, "}"]
