"""Gemini's ``generateContent`` and ``streamGenerateContent?alt=sse``; the model and the way stand in the path."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from forkgym.agents.gateway.wire import (
    TEXT_ONLY,
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
    picture,
    record,
    seen,
    text,
    texts,
)

name = "gemini"
closing = ""
_STATUS = {
    "unauthorized": "UNAUTHENTICATED",
    "unknown": "NOT_FOUND",
    "over": "PERMISSION_DENIED",
    "busy": "RESOURCE_EXHAUSTED",
    "engine": "INTERNAL",
}
_UNKNOWN = ("frequencyPenalty", "presencePenalty", "responseSchema", "responseJsonSchema", "responseModalities")


def read(body: Mapping[str, Any]) -> Request:
    """A request of ``POST /v1beta/models/NAME:generateContent``; ``model`` and ``stream`` come from the path."""
    messages: list[Message] = []
    system = body.get("systemInstruction") or body.get("system_instruction")
    if system is not None:
        said = [system] if isinstance(system, str) else _texts(record(system, "systemInstruction"), "systemInstruction")
        messages.append({"role": "system", "content": "\n".join(said)})
    calls = _Calls()
    for i, content in enumerate(items(body.get("contents"), "contents")):
        messages += _content(record(content, f"contents[{i}]"), f"contents[{i}]", calls)
    options = record(body.get("generationConfig"), "generationConfig", optional=True)
    thinking = record(options.get("thinkingConfig"), "thinkingConfig", optional=True)
    ignored = [key for key in _UNKNOWN if options.get(key)]
    mode = record(record(body.get("toolConfig"), "toolConfig", optional=True).get("functionCallingConfig"),
                  "functionCallingConfig", optional=True).get("mode", "AUTO")  # fmt: skip
    if mode not in ("AUTO", "MODE_UNSPECIFIED"):
        ignored.append("toolConfig")
    return Request(
        messages,
        list(_tools(body, ignored)),
        model=text(body.get("model") or "", "model"),
        stream=flag(body.get("stream"), "stream"),
        n=integer(options.get("candidateCount"), "candidateCount", 1) or 1,
        stop=texts(options.get("stopSequences"), "stopSequences"),
        max_tokens=integer(options.get("maxOutputTokens"), "maxOutputTokens", 1),
        temperature=number(options.get("temperature"), "temperature", 0, 2),
        top_p=number(options.get("topP"), "topP", 0, 1),
        top_k=integer(options.get("topK"), "topK", 0),
        seed=integer(options.get("seed"), "seed", -(2**63)),
        reasoning=flag(thinking.get("includeThoughts"), "includeThoughts"),
        ignored=ignored,
    )


class _Calls:
    """Names calls and finds the call that an answer belongs to; ids are optional in this dialect."""

    def __init__(self) -> None:
        self._open: list[tuple[str, str]] = []
        self._count = 0

    def made(self, name: str, id: str) -> str:
        self._count += 1
        self._open.append((id or f"{name}/{self._count}", name))
        return self._open[-1][0]

    def answered(self, name: str, id: str) -> str:
        """The id of the call: the one named, or the first of this name that has no answer yet."""
        found = next((one for one in self._open if one[0] == id), None)
        found = found or next((one for one in self._open if one[1] == name), (id or name, name))
        if found in self._open:
            self._open.remove(found)
        return found[0]


def _content(content: Mapping[str, Any], where: str, calls: _Calls) -> Iterator[Message]:
    role = content.get("role", "user")
    parts = [
        record(part, f"{where}.parts[{i}]") for i, part in enumerate(items(content.get("parts"), f"{where}.parts"))
    ]
    if role == "model":
        yield assistant(
            "".join(_said(parts, where, thought=False)),
            "".join(_said(parts, where, thought=True)),
            [_call(part["functionCall"], where, calls) for part in parts if "functionCall" in part],
        )
        return
    if role not in ("user", "function"):
        raise Refusal("malformed", f"{where}.role: {role!r} is neither user nor model")
    answers = [record(part["functionResponse"], where) for part in parts if "functionResponse" in part]
    for answer in answers:
        name = text(answer.get("name"), f"{where}.functionResponse.name")
        said = record(answer.get("response"), f"{where}.functionResponse.response", optional=True)
        words = said.get("output") if set(said) == {"output"} and isinstance(said.get("output"), str) else None
        id = calls.answered(name, text(answer.get("id") or "", f"{where}.functionResponse.id"))
        yield {"role": "tool", "content": json.dumps(said) if words is None else words, "tool_call_id": id}
    shown = [one for part in parts for one in _shown(part, where)]
    if shown or not answers:
        yield seen(shown)


def _shown(part: Mapping[str, Any], where: str) -> Iterator[Message]:
    """A part as chat completions write it: an image, a text, or nothing."""
    if (data := part.get("inlineData")) is not None:
        held = record(data, f"{where}.inlineData")
        yield picture(inline(held.get("mimeType"), held.get("data"), f"{where}.inlineData"), where)
    elif (file := part.get("fileData")) is not None:
        yield picture(text(record(file, f"{where}.fileData").get("fileUri"), f"{where}.fileData.fileUri"), where)
    else:
        yield from ({"type": "text", "text": words} for words in _said([part], where, thought=False))


def _call(value: Any, where: str, calls: _Calls) -> tuple[str, str, str]:
    call = record(value, f"{where}.functionCall")
    name = text(call.get("name"), f"{where}.functionCall.name")
    arguments = record(call.get("args"), f"{where}.functionCall.args", optional=True)
    return calls.made(name, text(call.get("id") or "", f"{where}.functionCall.id")), name, json.dumps(arguments)


def _texts(content: Mapping[str, Any], where: str) -> list[str]:
    found = items(content.get("parts"), f"{where}.parts")
    return _said([record(part, f"{where}.parts[{i}]") for i, part in enumerate(found)], where, thought=False)


def _said(parts: Sequence[Mapping[str, Any]], where: str, *, thought: bool) -> list[str]:
    """The texts among the parts, or the thoughts. Parts that are neither text nor calls are refused."""
    found: list[str] = []
    for part in parts:
        if "text" in part:
            if bool(part.get("thought")) == thought:
                found.append(text(part["text"], f"{where}.text"))
        elif not {"functionCall", "functionResponse", "thoughtSignature"} & set(part):
            kind = next(iter(part), "nothing")
            raise Refusal("malformed", f"{where}: parts of type {kind!r} cannot be read here; {TEXT_ONLY}")
    return found


def _tools(body: Mapping[str, Any], ignored: list[str]) -> Iterator[Tool]:
    for i, value in enumerate(items(body.get("tools"), "tools", optional=True)):
        tool = record(value, f"tools[{i}]")
        ignored += [f"tool {key}" for key in tool if key != "functionDeclarations"]
        for declared in items(tool.get("functionDeclarations"), f"tools[{i}].functionDeclarations", optional=True):
            at = f"tools[{i}].functionDeclarations"
            found = record(declared, at)
            schema = found.get("parametersJsonSchema")
            schema = _lower(found.get("parameters")) if schema is None else schema
            yield function(text(found.get("name"), f"{at}.name"), found.get("description"), schema, at)


def _lower(schema: Any) -> Any:
    """A schema with types as JSON Schema spells them: this dialect writes them in capitals."""
    if isinstance(schema, list):
        return [_lower(one) for one in cast(list[Any], schema)]
    if not isinstance(schema, dict):
        return schema
    return {
        key: value.lower() if key == "type" and isinstance(value, str) else _lower(value)
        for key, value in cast(dict[str, Any], schema).items()
    }


def whole(reply: Reply) -> Mapping[str, Any]:
    """A ``GenerateContentResponse``."""
    candidates = [_candidate(reply, i, list(_parts(reply, i)), last=True) for i in range(len(reply.choices))]
    return {"candidates": candidates, **_tail(reply)}


def events(reply: Reply) -> Iterator[Event]:
    """The same in pieces; a call is never split. The last piece of a candidate says why it ended."""
    for i in range(len(reply.choices)):
        for part in _parts(reply, i):
            for piece in fragments(part["text"]) if "text" in part else ("",):
                cut = {**part, "text": piece} if "text" in part else part
                yield None, {"candidates": [_candidate(reply, i, [cut], last=False)], "modelVersion": reply.model}
        yield None, {"candidates": [_candidate(reply, i, [{"text": ""}], last=True)], **_tail(reply)}


def _candidate(reply: Reply, index: int, parts: list[Mapping[str, Any]], *, last: bool) -> Mapping[str, Any]:
    cut = reply.choices[index].finish == "length"
    ending = {"finishReason": "MAX_TOKENS" if cut else "STOP"} if last else {}
    return {"index": index, "content": {"role": "model", "parts": parts}, **ending}


def _parts(reply: Reply, index: int) -> Iterator[Mapping[str, Any]]:
    choice = reply.choices[index]
    turn = choice.turn
    if turn.reasoning and reply.request.reasoning:
        yield {"text": turn.reasoning, "thought": True}
    if turn.text or not turn.calls:
        yield {"text": turn.text}
    for id, call in zip(choice.call_ids, turn.calls, strict=True):
        yield {"functionCall": {"id": id, "name": call.name, "args": as_object(call.arguments)}}


def _tail(reply: Reply) -> Mapping[str, Any]:
    usage = {
        "promptTokenCount": reply.prompt_tokens,
        "candidatesTokenCount": reply.sampled_tokens,
        "totalTokenCount": reply.prompt_tokens + reply.sampled_tokens,
    }
    return {"usageMetadata": usage, "modelVersion": reply.model, "responseId": reply.id}


def counted(tokens: int) -> Mapping[str, Any]:
    """The answer of ``countTokens``."""
    return {"totalTokens": tokens}


def error(refusal: Refusal) -> Mapping[str, Any]:
    """Google's ``{"error": ...}``."""
    status = _STATUS.get(refusal.kind, "INVALID_ARGUMENT")
    return {"error": {"code": refusal.status, "message": refusal.message, "status": status}}


def failed(refusal: Refusal) -> Event:
    """The same object as an event."""
    return None, error(refusal)
