"""Anthropic messages, with thinking blocks where the client asks for them, and ``count_tokens``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from forkgym.agents.gateway.wire import (
    Choice,
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
    inline,
    integer,
    items,
    number,
    parts,
    picture,
    record,
    text,
    texts,
    unfollowed,
    user,
)

name = "messages"
closing = ""
_FINISH = {"stop": "end_turn", "stop_text": "stop_sequence", "length": "max_tokens", "calls": "tool_use"}
_TYPES = {
    "unauthorized": "authentication_error",
    "unknown": "not_found_error",
    "large": "request_too_large",
    "over": "permission_error",
    "busy": "rate_limit_error",
    "engine": "api_error",
}
# A line that Claude Code puts before its system prompt. It says nothing to the model and is new in every request.
_BILLING = "x-anthropic-billing-header:"


def read(body: Mapping[str, Any]) -> Request:
    """A request of ``POST /v1/messages`` or ``/v1/messages/count_tokens``."""
    messages: list[Message] = []
    system = _system(body.get("system"))
    if system:
        messages.append({"role": "system", "content": system})
    for i, message in enumerate(items(body.get("messages"), "messages")):
        messages += _message(message, f"messages[{i}]")
    ignored = unfollowed(body, ("mcp_servers", "container"))
    tools = list(_tools(body, ignored))
    thinking = record(body.get("thinking"), "thinking", optional=True).get("type", "disabled")
    return Request(
        messages,
        tools,
        model=text(body.get("model") or "", "model"),
        stream=flag(body.get("stream"), "stream"),
        stop=texts(body.get("stop_sequences"), "stop_sequences"),
        max_tokens=integer(body.get("max_tokens"), "max_tokens", 1),
        temperature=number(body.get("temperature"), "temperature", 0, 1),
        top_p=number(body.get("top_p"), "top_p", 0, 1),
        top_k=integer(body.get("top_k"), "top_k", 0),
        reasoning=thinking != "disabled",
        ignored=ignored,
    )


def _system(value: Any) -> str:
    blocks = [value] if isinstance(value, str) else items(value, "system", optional=True)
    said = [parts([b] if not isinstance(b, str) else b, f"system[{i}]", ("text",)) for i, b in enumerate(blocks)]
    kept = ["\n".join(line for line in one.split("\n") if not line.startswith(_BILLING)) for one in said]
    return "\n".join(filter(None, kept))


def _message(value: Any, where: str) -> Iterator[Message]:
    """The messages of one: answers of tools come first, each as its own, then what the user says."""
    message = record(value, where)
    role, content = text(message.get("role"), f"{where}.role"), message.get("content")
    at = f"{where}.content"
    blocks: list[Any] = [{"type": "text", "text": content}] if isinstance(content, str) else [*items(content, at)]
    if role == "assistant":
        yield _assistant(blocks, at)
        return
    if role not in ("user", "system"):
        raise Refusal("malformed", f"{where}.role: {role!r} is neither user nor assistant")
    answers = [block for block in blocks if record(block, at).get("type") == "tool_result"]
    for i, block in enumerate(answers):
        said = parts(block.get("content"), f"{at}[{i}].content", ("text",))
        yield {
            "role": "tool",
            "content": said,
            "tool_call_id": text(block.get("tool_use_id"), f"{at}[{i}].tool_use_id"),
        }
    rest = [block for block in blocks if block.get("type") != "tool_result"]
    if rest or not answers:
        if role == "user":
            yield user(rest, at, ("text",), _image)
        else:
            yield {"role": role, "content": parts(rest, at, ("text",))}


def _image(block: Mapping[str, Any], at: str) -> Message | None:
    if block.get("type") != "image":
        return None
    source = record(block.get("source"), f"{at}.source")
    if source.get("type") == "url":
        return picture(text(source.get("url"), f"{at}.source.url"), at)
    if source.get("type") != "base64":
        raise Refusal("malformed", f"{at}.source.type: {source.get('type')!r} is neither base64 nor url")
    return picture(inline(source.get("media_type"), source.get("data"), f"{at}.source"), at)


def _assistant(blocks: list[Any], where: str) -> Message:
    said: list[Any] = []
    thoughts: list[str] = []
    calls: list[tuple[str, str, str]] = []
    for i, value in enumerate(blocks):
        block, at = record(value, f"{where}[{i}]"), f"{where}[{i}]"
        kind = block.get("type")
        if kind == "thinking":
            thoughts.append(text(block.get("thinking"), f"{at}.thinking"))
        elif kind == "tool_use":
            arguments = json.dumps(record(block.get("input"), f"{at}.input"))
            calls.append((text(block.get("id"), f"{at}.id"), text(block.get("name"), f"{at}.name"), arguments))
        elif kind != "redacted_thinking":
            said.append(block)
    return assistant(parts(said, where, ("text",)), "\n".join(thoughts), calls)


def _tools(body: Mapping[str, Any], ignored: list[str]) -> Iterator[Tool]:
    for i, value in enumerate(items(body.get("tools"), "tools", optional=True)):
        at = f"tools[{i}]"
        tool = record(value, at)
        name = text(tool.get("name"), f"{at}.name")
        if tool.get("type") in (None, "custom"):
            yield function(name, tool.get("description"), tool.get("input_schema"), at)
        else:  # one that Anthropic's servers would run
            ignored.append(f"tool {name}")


def whole(reply: Reply) -> Mapping[str, Any]:
    """A ``message``."""
    choice = reply.choices[0]
    content = [{**block, **filled} for block, filled, _ in _blocks(reply, choice)]
    return {**_head(reply), "content": content, **_ending(choice), "usage": _usage(reply, reply.sampled_tokens)}


def events(reply: Reply) -> Iterator[Event]:
    """The same as events: each content block is begun, brought in pieces, and closed."""
    choice = reply.choices[0]
    begun: dict[str, Any] = {
        **_head(reply),
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": _usage(reply, 0),
    }
    yield _event("message_start", message=begun)
    for index, (block, _, deltas) in enumerate(_blocks(reply, choice)):
        yield _event("content_block_start", index=index, content_block=block)
        for delta in deltas:
            yield _event("content_block_delta", index=index, delta=delta)
        yield _event("content_block_stop", index=index)
    yield _event("message_delta", delta=_ending(choice), usage={"output_tokens": reply.sampled_tokens})
    yield _event("message_stop")


_Block = tuple[Mapping[str, Any], Mapping[str, Any], list[Mapping[str, Any]]]


def _blocks(reply: Reply, choice: Choice) -> Iterator[_Block]:
    """Each content block: how it begins, what it holds in the end, and the pieces that lead there."""
    turn = choice.turn
    if turn.reasoning and reply.request.reasoning:
        deltas = [{"type": "thinking_delta", "thinking": piece} for piece in fragments(turn.reasoning)]
        deltas.append({"type": "signature_delta", "signature": reply.id})
        filled = {"thinking": turn.reasoning, "signature": reply.id}
        yield {"type": "thinking", "thinking": "", "signature": ""}, filled, [*deltas]
    if turn.text or not turn.calls:
        yield (
            {"type": "text", "text": ""},
            {"text": turn.text},
            [{"type": "text_delta", "text": piece} for piece in fragments(turn.text)],
        )
    for id, call in zip(choice.call_ids, turn.calls, strict=True):
        arguments = as_object(call.arguments)
        yield (
            {"type": "tool_use", "id": id, "name": call.name, "input": {}},
            {"input": arguments},
            [{"type": "input_json_delta", "partial_json": piece} for piece in fragments(json.dumps(arguments))],
        )


def _head(reply: Reply) -> Mapping[str, Any]:
    return {"id": f"msg_{reply.id}", "type": "message", "role": "assistant", "model": reply.model}


def _ending(choice: Choice) -> Mapping[str, Any]:
    return {"stop_reason": _FINISH[choice.finish], "stop_sequence": choice.stop_text or None}


def _usage(reply: Reply, sampled: int) -> Mapping[str, Any]:
    cached = {"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
    return {"input_tokens": reply.prompt_tokens, "output_tokens": sampled, **cached}


def _event(kind: str, **data: Any) -> Event:
    return kind, {"type": kind, **data}


def counted(tokens: int) -> Mapping[str, Any]:
    """The answer of ``count_tokens``."""
    return {"input_tokens": tokens}


def error(refusal: Refusal) -> Mapping[str, Any]:
    """Anthropic's ``{"type": "error", ...}``."""
    message = f"prompt is too long: {refusal.message}" if refusal.kind == "context" else refusal.message
    return {"type": "error", "error": {"type": _TYPES.get(refusal.kind, "invalid_request_error"), "message": message}}


def failed(refusal: Refusal) -> Event:
    """The same object as an event."""
    return "error", error(refusal)
