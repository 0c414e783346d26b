"""OpenAI chat completions. Beside the standard: ``reasoning_content``, ``top_k``, and ids with ``return_token_ids``."""

from __future__ import annotations

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
    texts,
    unfollowed,
    user,
)

name = "chat"
closing = "data: [DONE]\n\n"
_TEXT = ("text", "refusal")
_FINISH = {"stop": "stop", "stop_text": "stop", "length": "length", "calls": "tool_calls"}
_TYPES = {
    "unauthorized": "authentication_error",
    "over": "permission_error",
    "busy": "rate_limit_error",
    "engine": "server_error",
}
_CODES = {"context": "context_length_exceeded", "unknown": "not_found", "busy": "rate_limit_exceeded"}
# Options that change what is sampled and that no policy here knows; other unknown fields change nothing.
_UNKNOWN = ("frequency_penalty", "presence_penalty", "logit_bias", "min_p", "repetition_penalty", "functions")


def read(body: Mapping[str, Any]) -> Request:
    """A request of ``POST /v1/chat/completions``."""
    messages = [_message(m, f"messages[{i}]") for i, m in enumerate(items(body.get("messages"), "messages"))]
    tools = [_tool(t, f"tools[{i}]") for i, t in enumerate(items(body.get("tools"), "tools", optional=True))]
    options = record(body.get("stream_options"), "stream_options", optional=True)
    most = integer(body.get("max_completion_tokens"), "max_completion_tokens", 1)
    return Request(
        messages,
        tools,
        model=text(body.get("model") or "", "model"),
        stream=flag(body.get("stream"), "stream"),
        usage=flag(options.get("include_usage"), "stream_options.include_usage"),
        n=integer(body.get("n"), "n", 1) or 1,
        stop=texts(body.get("stop"), "stop"),
        max_tokens=integer(body.get("max_tokens"), "max_tokens", 1) if most is None else most,
        temperature=number(body.get("temperature"), "temperature", 0, 2),
        top_p=number(body.get("top_p"), "top_p", 0, 1),
        top_k=integer(body.get("top_k"), "top_k", -1),
        seed=integer(body.get("seed"), "seed", -(2**63)),
        logprobs=flag(body.get("logprobs"), "logprobs"),
        token_ids=flag(body.get("return_token_ids"), "return_token_ids"),
        ignored=unfollowed(body, _UNKNOWN) + _formats(body),
    )


def _formats(body: Mapping[str, Any]) -> list[str]:
    wanted = record(body.get("response_format"), "response_format", optional=True).get("type", "text")
    return [] if wanted == "text" else ["response_format"]


def _message(value: Any, where: str) -> Message:
    message = record(value, where)
    role, at = text(message.get("role"), f"{where}.role"), f"{where}.content"
    if role in ("system", "developer"):
        return {"role": "system", "content": parts(message.get("content"), at, _TEXT)}
    if role == "user":
        return user(message.get("content"), at, _TEXT, _image)
    if role == "tool":
        id = text(message.get("tool_call_id"), f"{where}.tool_call_id")
        return {"role": "tool", "content": parts(message.get("content"), at, _TEXT), "tool_call_id": id}
    if role == "assistant":
        reasoning = message.get("reasoning_content") or message.get("reasoning") or ""
        calls = items(message.get("tool_calls"), f"{where}.tool_calls", optional=True)
        return assistant(
            parts(message.get("content"), at, _TEXT),
            text(reasoning, f"{where}.reasoning_content"),
            [_call(call, f"{where}.tool_calls[{i}]") for i, call in enumerate(calls)],
        )
    raise Refusal("malformed", f"{where}.role: {role!r} is none of system, developer, user, assistant and tool")


def _image(part: Mapping[str, Any], at: str) -> Message | None:
    if part.get("type") != "image_url":
        return None
    image = record(part.get("image_url"), f"{at}.image_url")
    return picture(text(image.get("url"), f"{at}.image_url.url"), at, image.get("detail"))


def _call(value: Any, where: str) -> tuple[str, str, str]:
    call = record(value, where)
    called = record(call.get("function"), f"{where}.function")
    return (
        text(call.get("id"), f"{where}.id"),
        text(called.get("name"), f"{where}.function.name"),
        text(called.get("arguments") or "", f"{where}.function.arguments"),
    )


def _tool(value: Any, where: str) -> Tool:
    tool = record(value, where)
    if tool.get("type") != "function":
        raise Refusal("malformed", f"{where}.type: only functions can be called, not {tool.get('type')!r}")
    at = f"{where}.function"
    defined = record(tool.get("function"), at)
    return function(text(defined.get("name"), f"{at}.name"), defined.get("description"), defined.get("parameters"), at)


def whole(reply: Reply) -> Mapping[str, Any]:
    """A ``chat.completion``."""
    choices: list[Mapping[str, Any]] = []
    for index, choice in enumerate(reply.choices):
        calls = [_sent(choice, i) for i in range(len(choice.call_ids))]
        message: dict[str, Any] = {"role": "assistant", "content": choice.turn.text or (None if calls else "")}
        if choice.turn.reasoning:
            message["reasoning_content"] = choice.turn.reasoning
        if calls:
            message["tool_calls"] = calls
        choices.append({"index": index, "message": message, **_ending(reply, choice)})
    more = {"prompt_token_ids": list(reply.prompt_ids)} if reply.request.token_ids else {}
    return {**_head(reply, "chat.completion"), "choices": choices, "usage": _usage(reply), **more}


def events(reply: Reply) -> Iterator[Event]:
    """The ``chat.completion.chunk`` objects: role, reasoning, text, calls in fragments, finish, and usage if wanted."""
    head = _head(reply, "chat.completion.chunk")
    more: dict[str, Any] = {"usage": None} if reply.request.usage else {}
    first: dict[str, Any] = {"prompt_token_ids": list(reply.prompt_ids)} if reply.request.token_ids else {}
    for index, choice in enumerate(reply.choices):
        for delta in _deltas(choice):
            chunk = {"choices": [{"index": index, "delta": delta, "finish_reason": None}]}
            yield None, {**head, **chunk, **more, **first}
            first = {}
        yield None, {**head, "choices": [{"index": index, "delta": {}, **_ending(reply, choice)}], **more}
    if reply.request.usage:
        yield None, {**head, "choices": [], "usage": _usage(reply)}


def _deltas(choice: Choice) -> Iterator[Mapping[str, Any]]:
    yield {"role": "assistant", "content": ""}
    for piece in fragments(choice.turn.reasoning):
        yield {"reasoning_content": piece}
    for piece in fragments(choice.turn.text):
        yield {"content": piece}
    for i in range(len(choice.call_ids)):
        call = _sent(choice, i)
        arguments = call["function"]["arguments"]
        yield {"tool_calls": [{"index": i, **call, "function": {**call["function"], "arguments": ""}}]}
        for piece in fragments(arguments):
            yield {"tool_calls": [{"index": i, "function": {"arguments": piece}}]}


def _sent(choice: Choice, i: int) -> dict[str, Any]:
    call = choice.turn.calls[i]
    called = {"name": call.name, "arguments": call.arguments}
    return {"id": choice.call_ids[i], "type": "function", "function": called}


def _ending(reply: Reply, choice: Choice) -> Mapping[str, Any]:
    """Why the choice ended, and log-probabilities and ids if the client asked for them."""
    ending: dict[str, Any] = {"finish_reason": _FINISH[choice.finish], "logprobs": None}
    if choice.finish == "stop_text":
        ending["stop_reason"] = choice.stop_text
    if reply.request.logprobs:
        content = [
            {"token": piece, "logprob": logprob, "bytes": list(piece.encode()), "top_logprobs": []}
            for piece, logprob in zip(choice.pieces, choice.logprobs, strict=True)
        ]
        ending["logprobs"] = {"content": content, "refusal": None}
    if reply.request.token_ids:
        ending["token_ids"] = list(choice.ids)
    return ending


def _head(reply: Reply, kind: str) -> Mapping[str, Any]:
    return {"id": f"chatcmpl-{reply.id}", "object": kind, "created": reply.created, "model": reply.model}


def _usage(reply: Reply) -> Mapping[str, Any]:
    return {
        "prompt_tokens": reply.prompt_tokens,
        "completion_tokens": reply.sampled_tokens,
        "total_tokens": reply.prompt_tokens + reply.sampled_tokens,
    }


def error(refusal: Refusal) -> Mapping[str, Any]:
    """OpenAI's ``{"error": ...}``."""
    kind = _TYPES.get(refusal.kind, "invalid_request_error")
    return {"error": {"message": refusal.message, "type": kind, "param": None, "code": _CODES.get(refusal.kind)}}


def failed(refusal: Refusal) -> Event:
    """The same object as an event."""
    return None, error(refusal)
