"""OpenAI responses: items instead of messages, tools whose argument is free text, and ``previous_response_id``."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from forkgym.agents.gateway.dialects import chat
from forkgym.agents.gateway.wire import (
    Event,
    Message,
    Refusal,
    Reply,
    Request,
    Tool,
    as_object,
    assistant,
    flag,
    fragments,
    function,
    integer,
    items,
    number,
    parts,
    picture,
    record,
    text,
    unfollowed,
    user,
)

name = "responses"
closing = ""
_TEXT = ("input_text", "output_text", "text", "refusal")
_FREE = "input"  # the one argument of a tool that takes free text
_FREE_SCHEMA = {"type": "object", "properties": {_FREE: {"type": "string"}}, "required": [_FREE]}


def read(body: Mapping[str, Any]) -> Request:
    """A request of ``POST /v1/responses``."""
    given = body.get("input")
    asked: Sequence[Any] = [{"role": "user", "content": given}] if isinstance(given, str) else items(given, "input")
    messages: list[Message] = []
    if body.get("instructions"):
        messages.append({"role": "system", "content": text(body["instructions"], "instructions")})
    messages += _merged(_item(item, f"input[{i}]") for i, item in enumerate(asked))
    ignored = unfollowed(body, ("background", "conversation", "max_tool_calls", "prompt"))
    shape = record(record(body.get("text"), "text", optional=True).get("format"), "text.format", optional=True)
    if shape.get("type", "text") != "text":
        ignored.append("text.format")
    free: set[str] = set()
    return Request(
        messages,
        list(_tools(body, free, ignored)),
        model=text(body.get("model") or "", "model"),
        stream=flag(body.get("stream"), "stream"),
        max_tokens=integer(body.get("max_output_tokens"), "max_output_tokens", 1),
        temperature=number(body.get("temperature"), "temperature", 0, 2),
        top_p=number(body.get("top_p"), "top_p", 0, 1),
        free=frozenset(free),
        previous=text(body.get("previous_response_id") or "", "previous_response_id").removeprefix("resp_"),
        ignored=ignored,
    )


def _item(value: Any, where: str) -> Message:
    """One item as a message of its own."""
    item = record(value, where)
    kind = text(item.get("type") or "message", f"{where}.type")
    if kind == "message":
        role = text(item.get("role"), f"{where}.role")
        if role == "user":
            return user(item.get("content"), f"{where}.content", _TEXT, _image)
        said = parts(item.get("content"), f"{where}.content", _TEXT)
        if role == "assistant":
            return assistant(said)
        if role not in ("system", "developer"):
            raise Refusal("malformed", f"{where}.role: {role!r} is none of user, assistant, system and developer")
        return {"role": "system", "content": said}
    if kind == "reasoning":
        thoughts = items(item.get("content") or item.get("summary") or [], f"{where}.content")
        return assistant("", parts(thoughts, f"{where}.content", ("reasoning_text", "summary_text")))
    if kind in ("function_call", "custom_tool_call"):
        key = "arguments" if kind == "function_call" else "input"
        arguments = text(item.get(key) or "", f"{where}.{key}")
        arguments = arguments if kind == "function_call" else json.dumps({_FREE: arguments})
        id, name = text(item.get("call_id"), f"{where}.call_id"), text(item.get("name"), f"{where}.name")
        return assistant("", calls=[(id, name, arguments)])
    if kind in ("function_call_output", "custom_tool_call_output"):
        said = parts(item.get("output"), f"{where}.output", _TEXT)
        return {"role": "tool", "content": said, "tool_call_id": text(item.get("call_id"), f"{where}.call_id")}
    raise Refusal("malformed", f"{where}.type: items of type {kind!r} cannot be read")


def _image(part: Mapping[str, Any], at: str) -> Message | None:
    if part.get("type") != "input_image":
        return None
    return picture(text(part.get("image_url"), f"{at}.image_url"), at, part.get("detail"))


def _merged(messages: Iterator[Message]) -> Iterator[Message]:
    """The assistant's items that follow one another are one turn."""
    for mine, group in itertools.groupby(messages, lambda message: message["role"] == "assistant"):
        if not mine:
            yield from group
            continue
        turn = list(group)
        yield assistant(
            "\n".join(filter(None, (message["content"] for message in turn))),
            "\n".join(message["reasoning_content"] for message in turn if "reasoning_content" in message),
            [
                (call["id"], call["function"]["name"], call["function"]["arguments"])
                for message in turn
                for call in message.get("tool_calls", ())
            ],
        )


def _tools(body: Mapping[str, Any], free: set[str], ignored: list[str]) -> Iterator[Tool]:
    for i, value in enumerate(items(body.get("tools"), "tools", optional=True)):
        at = f"tools[{i}]"
        tool = record(value, at)
        kind = text(tool.get("type"), f"{at}.type")
        if kind not in ("function", "custom"):  # one that OpenAI's servers would run
            ignored.append(f"tool {kind}")
            continue
        name = text(tool.get("name"), f"{at}.name")
        if kind == "custom":
            free.add(name)
        schema = _FREE_SCHEMA if kind == "custom" else tool.get("parameters")
        yield function(name, tool.get("description"), schema, at)


def whole(reply: Reply) -> Mapping[str, Any]:
    """A ``response``."""
    cut = reply.choices[0].finish == "length"
    return {
        **_head(reply, "incomplete" if cut else "completed"),
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "output": list(_output(reply)),
        "usage": {
            "input_tokens": reply.prompt_tokens,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": reply.sampled_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": reply.prompt_tokens + reply.sampled_tokens,
        },
    }


def _head(reply: Reply, status: str) -> dict[str, Any]:
    asked = reply.request
    return {
        "id": f"resp_{reply.id}", "object": "response", "created_at": reply.created, "status": status, "error": None,
        "incomplete_details": None, "instructions": None, "metadata": {}, "model": reply.model, "output": [],
        "parallel_tool_calls": True, "temperature": asked.temperature, "top_p": asked.top_p, "tool_choice": "auto",
        "tools": [], "max_output_tokens": asked.max_tokens, "usage": None,
        "previous_response_id": f"resp_{asked.previous}" if asked.previous else None,
    }  # fmt: skip


def _output(reply: Reply) -> Iterator[dict[str, Any]]:
    """The items of a turn: reasoning, what it says, its calls."""
    choice = reply.choices[0]
    turn, status = choice.turn, "incomplete" if choice.finish == "length" else "completed"
    if turn.reasoning:
        thoughts = [{"type": "reasoning_text", "text": turn.reasoning}]
        yield {"type": "reasoning", "id": f"rs_{reply.id}", "summary": [], "content": thoughts, "status": status}
    if turn.text or not turn.calls:
        said: list[Any] = [{"type": "output_text", "text": turn.text, "annotations": [], "logprobs": []}]
        yield {"type": "message", "id": f"msg_{reply.id}", "role": "assistant", "content": said, "status": status}
    for i, (id, call) in enumerate(zip(choice.call_ids, turn.calls, strict=True)):
        item: dict[str, Any] = {"id": f"fc_{reply.id}_{i}", "call_id": id, "name": call.name, "status": status}
        words = as_object(call.arguments).get(_FREE)
        if call.name in reply.request.free and isinstance(words, str):
            yield {"type": "custom_tool_call", "input": words, **item}
        else:
            yield {"type": "function_call", "arguments": call.arguments, **item}


def events(reply: Reply) -> Iterator[Event]:
    """The same as numbered events: each item is added, brought in pieces, and done."""
    for position, event in enumerate(_events(reply)):
        yield event["type"], {"sequence_number": position, **event}


def _events(reply: Reply) -> Iterator[dict[str, Any]]:
    yield {"type": "response.created", "response": _head(reply, "in_progress")}
    yield {"type": "response.in_progress", "response": _head(reply, "in_progress")}
    for index, item in enumerate(_output(reply)):
        place = {"output_index": index, "item_id": item["id"]}
        begun = {**item, "status": "in_progress"}
        key = next(key for key in ("content", "arguments", "input") if key in item)
        begun[key] = [] if key == "content" else ""
        yield {"type": "response.output_item.added", "output_index": index, "item": begun}
        if key == "content":
            yield from _content(place, item["content"][0])
        else:
            kind = "function_call_arguments" if key == "arguments" else "custom_tool_call_input"
            for piece in fragments(item[key]):
                yield {"type": f"response.{kind}.delta", "delta": piece, **place}
            yield {"type": f"response.{kind}.done", key: item[key], "name": item["name"], **place}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    response = whole(reply)
    yield {"type": f"response.{response['status']}", "response": response}


def _content(place: Mapping[str, Any], part: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    place = {**place, "content_index": 0}
    kind = part["type"]
    more: dict[str, Any] = {"logprobs": []} if kind == "output_text" else {}
    yield {"type": "response.content_part.added", "part": {**part, "text": ""}, **place}
    for piece in fragments(part["text"]):
        yield {"type": f"response.{kind}.delta", "delta": piece, **more, **place}
    yield {"type": f"response.{kind}.done", "text": part["text"], **more, **place}
    yield {"type": "response.content_part.done", "part": part, **place}


def counted(tokens: int) -> Mapping[str, Any]:
    """The answer of ``input_tokens``."""
    return {"object": "response.input_tokens", "input_tokens": tokens}


def error(refusal: Refusal) -> Mapping[str, Any]:
    """The same as in chat completions."""
    return chat.error(refusal)


def failed(refusal: Refusal) -> Event:
    """An ``error`` event."""
    found = chat.error(refusal)["error"]
    code = found["code"] or found["type"]
    return "error", {"type": "error", "sequence_number": 0, "code": code, "message": refusal.message, "param": None}
