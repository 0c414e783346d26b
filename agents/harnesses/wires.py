"""The same requests asked as streams and whole: what is rebuilt from a stream must be the whole answer, ids and all."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from forkgym.agents.base import ChatFormat, Policy, SamplingParams, Segment
from forkgym.agents.harnesses.doors import gateway_class

if TYPE_CHECKING:
    from forkgym.agents.gateway.server import Gateway

_SHOWN = 200
_Json = Mapping[str, Any]


@dataclass(frozen=True)
class Asked:
    """A request for a turn of the model: its path below the episode's address, with the query, and its body."""

    path: str
    body: bytes

    @property
    def dialect(self) -> str:
        """A key of ``VIEWS``."""
        return next(name for name in VIEWS if name in self.path)

    def ways(self, stream: bool) -> tuple[str, _Json]:
        """Where and what to ask so that the answer is a stream, or is not."""
        body: dict[str, Any] = json.loads(self.body)
        if self.dialect == ":":
            way = "streamGenerateContent?alt=sse" if stream else "generateContent"
            return self.path[: self.path.rindex(":") + 1] + way, body
        if self.dialect == "/chat/completions":
            body |= {"return_token_ids": True, "logprobs": True, "stream_options": {"include_usage": True}}
        return self.path, {**body, "stream": stream}


def compare(
    asked: Sequence[Asked], make: Callable[[], Policy], format: ChatFormat, segments: Sequence[Segment] | None = None
) -> tuple[bool, str]:
    """Ask all in their order, in one episode as streams and in another whole, each of a new policy.

    True if the answers are equal, and the token streams, also to ``segments`` if they are given; and what was found.
    """
    answers: list[list[Any]] = []
    found = [] if segments is None else [_tokens(segments)]
    for stream in (True, False):
        with (
            gateway_class()(make(), format, port=0) as gateway,
            gateway.open("check", SamplingParams(max_tokens=1 << 16), seed=0) as session,
        ):
            answers.append([_answer(gateway, session.path, one, stream) for one in asked])
            found.append(_tokens(session.segments()))
    for number, (streamed, whole) in enumerate(zip(*answers, strict=True), 1):
        if streamed != whole:
            return False, f"answer {number}: streamed {_clip(streamed)}, whole {_clip(whole)}"
    if any(one != found[0] for one in found):
        return False, "the token streams differ"
    tokens = sum(sum(sampled) for _, sampled, _ in found[0])
    return bool(asked), f"{len(asked)} answers, {tokens} tokens sampled, equal both ways"


def _tokens(segments: Iterable[Segment]) -> list[tuple[tuple[int, ...], ...]]:
    return sorted((tuple(s.ids), tuple(s.sampled), tuple(s.logprobs)) for s in segments)  # pyright: ignore


def _answer(gateway: Gateway, base: str, asked: Asked, stream: bool) -> Any:
    """What a client makes of the answer; of a refusal its text."""
    path, body = asked.ways(stream)
    connection = http.client.HTTPConnection(gateway.url.removeprefix("http://"), timeout=120)
    try:
        connection.request("POST", base + path, json.dumps(body), {"content-type": "application/json"})
        got = connection.getresponse()
        text = got.read().decode()
    finally:
        connection.close()
    if got.status != 200:
        return f"{got.status}: {text}"
    rebuild, view = VIEWS[asked.dialect]
    return view(rebuild(_events(text)) if stream else json.loads(text))


def _events(text: str) -> Iterator[_Json]:
    for line in text.split("\n"):
        if line.startswith("data: ") and line != "data: [DONE]":
            yield json.loads(line.removeprefix("data: "))


def _clip(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


# ---- Chat completions


def _rebuild_chat(events: Iterator[_Json]) -> _Json:
    whole: dict[str, Any] = {"prompt_token_ids": None, "usage": None}
    choices: dict[int, dict[str, Any]] = {}
    for event in events:
        whole |= {key: event[key] for key in ("id", "model", *whole) if event.get(key) is not None}
        for part in event["choices"]:
            choice = choices.setdefault(part["index"], {"index": part["index"], "message": {"tool_calls": []}})
            choice |= {key: part[key] for key in part if key not in ("delta", "message")}
            _add(choice["message"], part["delta"])
    return {**whole, "choices": list(choices.values())}


def _add(message: dict[str, Any], delta: _Json) -> None:
    message |= {key: message.get(key, "") + delta[key] for key in ("content", "reasoning_content") if key in delta}
    message["role"] = delta.get("role", message.get("role"))
    for part in delta.get("tool_calls", ()):
        calls = message["tool_calls"]
        if part["index"] == len(calls):
            calls.append({"id": part["id"], "type": part["type"], "function": dict(part["function"])})
        else:
            calls[part["index"]]["function"]["arguments"] += part["function"]["arguments"]


def _view_chat(whole: _Json) -> Any:
    choices: list[Any] = []
    for choice in whole["choices"]:
        said = choice["message"]
        message = {key: said.get(key) or "" for key in ("role", "content", "reasoning_content")}
        choices.append({**choice, "message": {**message, "tool_calls": said.get("tool_calls", [])}})
    return {"choices": choices, **{key: whole[key] for key in ("id", "model", "usage", "prompt_token_ids")}}


# ---- Anthropic messages


def _rebuild_messages(events: Iterator[_Json]) -> _Json:
    whole: dict[str, Any] = {}
    blocks: list[dict[str, Any]] = []
    for event in events:
        kind = event["type"]
        if kind == "message_start":
            whole = dict(event["message"])
        elif kind == "content_block_start":
            blocks.append({**event["content_block"], "json": ""})
        elif kind == "content_block_delta":
            delta: dict[str, Any] = dict(event["delta"])
            block: dict[str, Any] = blocks[int(event["index"])]
            name = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}.get(
                delta.pop("type"), "json"
            )
            block[name] += "".join(delta.values())
        elif kind == "message_delta":
            whole |= event["delta"]
            whole["usage"] = {**whole["usage"], **event["usage"]}
    for made in blocks:
        written = made.pop("json")
        if made["type"] == "tool_use":
            made["input"] = json.loads(written)
    return {**whole, "content": blocks}


def _view_all(whole: _Json) -> Any:
    return whole


# ---- OpenAI responses


def _rebuild_responses(events: Iterator[_Json]) -> _Json:
    """From the pieces alone; that the closing events say the same is part of it."""
    items: list[dict[str, Any]] = []
    done: list[Any] = []
    last: _Json = {}
    for event in events:
        kind = event["type"]
        if kind == "response.output_item.added":
            items.append(dict(event["item"]))
        elif kind == "response.content_part.added":
            items[event["output_index"]]["content"].append(dict(event["part"]))
        elif kind.endswith(".delta"):
            item: dict[str, Any] = items[int(event["output_index"])]
            if "content_index" in event:
                item["content"][event["content_index"]]["text"] += event["delta"]
            else:
                item["arguments" if "arguments" in item else "input"] += event["delta"]
        elif kind == "response.output_item.done":
            done.append(event["item"])
        elif kind in ("response.completed", "response.incomplete"):
            last = event["response"]
    rebuilt = [{**item, "status": last["status"]} for item in items]
    return {**last, "output": rebuilt} if rebuilt == done == last["output"] else {"pieces": rebuilt, "done": done}


def _view_responses(whole: _Json) -> Any:
    return {key: value for key, value in whole.items() if key != "created_at"}


# ---- Gemini


def _rebuild_gemini(events: Iterator[_Json]) -> _Json:
    whole: dict[str, Any] = {}
    candidates: dict[int, dict[str, Any]] = {}
    for event in events:
        whole |= event
        for part in event["candidates"]:
            candidate = candidates.setdefault(part["index"], {"content": {"role": "model", "parts": []}})
            parts = [*candidate["content"]["parts"], *part["content"]["parts"]]
            candidate |= {**part, "content": {"role": part["content"]["role"], "parts": parts}}
    return {**whole, "candidates": list(candidates.values())}


def _view_gemini(whole: _Json) -> Any:
    """Neighbouring texts are one: that is how a client reads them."""
    candidates: list[Any] = []
    for candidate in whole["candidates"]:
        parts: list[dict[str, Any]] = []
        for part in candidate["content"]["parts"]:
            joins = parts and "text" in part and "text" in parts[-1] and part.get("thought") == parts[-1].get("thought")
            if joins:
                parts[-1]["text"] += part["text"]
            elif part != {"text": ""}:
                parts.append(dict(part))
        candidates.append({**candidate, "content": {**candidate["content"], "parts": parts}})
    return {**whole, "candidates": candidates}


# How a client rebuilds the whole of a dialect, and what of it must be equal; by what its path holds.
VIEWS: Mapping[str, tuple[Callable[[Iterator[_Json]], _Json], Callable[[_Json], Any]]] = {
    "/chat/completions": (_rebuild_chat, _view_chat),
    "/messages": (_rebuild_messages, _view_all),
    "/responses": (_rebuild_responses, _view_responses),
    ":": (_rebuild_gemini, _view_gemini),
}
