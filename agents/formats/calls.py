"""How model families write tool calls: as pieces of a conversation, and read from what was sampled."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from forkgym.agents.base import Call, Turn
from forkgym.agents.formats.chat import Layout
from forkgym.envs.calls import Reading, WrittenCall, checked_name, read_arguments, read_call, skip
from forkgym.envs.spaces import typed_value

DEEPSEEK_TAGS = (
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁calls▁end｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁outputs▁begin｜>",
    "<｜tool▁outputs▁end｜>",
    "<｜tool▁output▁begin｜>",
    "<｜tool▁output▁end｜>",
    "<｜tool▁sep｜>",
)
_CALLS, _END_CALLS, _CALL, _END_CALL, *_, _SEP = DEEPSEEK_TAGS
_FENCE, _END_FENCE = "\n```json\n", "\n```"
_BEGIN_FENCE = re.compile(r"\s*(?:```(?:json)?[ \t]*\r?\n)?")
_CLOSE_FENCE = re.compile(r"\s*(?:```\s*)?")
_PYTHON = "<|python_tag|>"
_BETWEEN = re.compile(r"[\s;,]*")
_LOOKS_LIKE_A_CALL = re.compile(r'\{\s*"(?:name"|parameters"|type"\s*:\s*"function")')
HERMES_TAGS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")


def typed_calls(turn: Turn, tools: Sequence[Mapping[str, Any]]) -> Turn:
    """The turn with untyped arguments read as the schemas of ``tools`` say; what can't be read so stays text."""
    if not any(call.untyped for call in turn.calls):
        return turn
    functions: list[Mapping[str, Any]] = [tool.get("function", tool) for tool in tools]
    schemas: dict[Any, Mapping[str, Any]] = {tool.get("name"): tool.get("parameters") or {} for tool in functions}
    calls = tuple(_typed(call, schemas.get(call.name, {})) if call.untyped else call for call in turn.calls)
    return replace(turn, calls=calls)


def _typed(call: Call, schema: Mapping[str, Any]) -> Call:
    properties: Mapping[str, Any] = schema.get("properties") or {}
    texts: dict[str, str] = json.loads(call.arguments)
    values = {key: typed_value(text, properties.get(key, {})) for key, text in texts.items()}
    try:
        return Call(call.name, json.dumps(values, ensure_ascii=False, allow_nan=False))
    except ValueError:  # a number that is none
        return Call(call.name, call.arguments)


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


def llama_section(tools: Sequence[Mapping[str, Any]]) -> list[str]:
    """What Llama 3.1 models are told of their tools at the head of the first user message, as in their template."""
    pieces = [
        "Given the following functions, please respond with a JSON for a function call with its proper arguments that "
        'best answers the given prompt.\n\nRespond in the format {"name": function name, "parameters": dictionary of '
        "argument name and its value}.Do not use variables.\n\n"
    ]
    return pieces + [json.dumps(tool, ensure_ascii=False, indent=4) + "\n\n" for tool in tools]


def write_llama(calls: Sequence[Call]) -> list[str]:
    """A call as bare JSON. Llama's template knows one a turn; more are parted by ``; ``."""
    pieces: list[str] = []
    for call in calls:
        pieces += [*(["; "] if pieces else []), *_members(call, "parameters")]
    return pieces


def read_llama(text: str, strict: bool = False) -> Reading:
    """A turn that is JSON objects, parted by semicolons. Not ``strict``: text before the first of them is allowed."""
    body = text.removeprefix(_PYTHON)
    found = _LOOKS_LIKE_A_CALL.search(body)
    if found is None or (strict and body[: found.start()].strip()):
        return Reading(text)
    before, at, calls = body[: found.start()], found.start(), list[WrittenCall]()
    try:
        while at < len(body):
            call, at = read_call(body, at, keys=("parameters", "arguments"), strict=strict)
            calls.append(call)
            at = skip(body, at, _BETWEEN)
    except ValueError as error:
        if calls and not strict and not _LOOKS_LIKE_A_CALL.match(body, at):
            return Reading((before + body[at:]).strip(), tuple(calls))
        return Reading((before + body[at:]) if calls else text, tuple(calls), str(error))
    return Reading(before.strip(), tuple(calls))


def deepseek_section(tools: Sequence[Mapping[str, Any]]) -> list[str]:
    """What DeepSeek models are told of their tools. Their own template says nothing, so these words are ours."""
    pieces = ["# Tools\n\nYou can call these functions:\n"]
    pieces += [f"\n{json.dumps(tool, ensure_ascii=False)}" for tool in tools]
    how = f"{_CALLS}{_CALL}function{_SEP}NAME{_FENCE}{{ARGUMENT: VALUE}}{_END_FENCE}{_END_CALL}{_END_CALLS}"
    return [*pieces, "\n\nTo call one, write its name and its arguments as JSON:\n", Layout(how)]


def write_deepseek(calls: Sequence[Call]) -> list[str]:
    """The calls of a turn as DeepSeek V3 and R1 write them."""
    pieces: list[str] = [Layout(_CALLS)]
    for i, call in enumerate(calls):
        pieces += [Layout(f"{_CALL}function{_SEP}" if i == 0 else f"\n{_CALL}function{_SEP}"), call.name]
        pieces += [Layout(_FENCE), call.arguments, Layout(f"{_END_FENCE}{_END_CALL}")]
    return [*pieces, Layout(_END_CALLS)]


def read_deepseek(text: str, strict: bool = False) -> Reading:
    """Calls as V3 and R1 write them. Not ``strict``: also as V3.1 does (name, separator, JSON), or without the end."""
    begin = text.find(_CALLS)
    if begin < 0:
        return Reading(text)
    calls: list[WrittenCall] = []
    at = begin + len(_CALLS)
    try:
        while (start := skip(text, at)) < len(text) and text.startswith(_CALL, start):
            call, at = _deepseek_call(text, start + len(_CALL), strict)
            calls.append(call)
        if not calls or (strict and not text.startswith(_END_CALLS, skip(text, at))):
            raise ValueError(f"is not closed by {_END_CALLS}" if calls else f"does not begin with {_CALL}")
    except ValueError as error:
        return Reading(text[:begin] + text[at:] if calls else text, tuple(calls), str(error))
    rest = text[skip(text, at) :].removeprefix(_END_CALLS)
    return Reading((text[:begin] + rest).strip("\n"), tuple(calls))


def _deepseek_call(text: str, at: int, strict: bool) -> tuple[WrittenCall, int]:
    """The call whose tag ends at ``at``, and where it ends."""
    head, _, body = text[at:].partition(_SEP)
    offset = at + len(head) + len(_SEP)
    if head == "function":
        name, fence, _ = body.partition("\n")
        offset += len(name) + len(fence)
    elif strict:
        raise ValueError("does not begin with its type 'function'")
    else:
        name = head
    arguments, end = read_arguments(text, skip(text, offset, _BEGIN_FENCE), strict=strict)
    end = skip(text, end, _CLOSE_FENCE)
    closed = text.startswith(_END_CALL, end)
    if not closed and (strict or end < len(text)):
        raise ValueError(f"is not closed by {_END_CALL}")
    return WrittenCall(checked_name(name.strip()), arguments), end + len(_END_CALL) * closed


def _members(call: Call, key: str) -> list[str]:
    return ['{"name": ', json.dumps(call.name, ensure_ascii=False), f', "{key}": ', call.arguments, "}"]
