"""What every dialect is read into and rendered from: one request, one reply, one refusal.

Messages and tools have the shape of OpenAI's chat completions, with text only: see ``ChatFormat``. A user's message
with images also has ``parts``: all it holds, in order, as chat completions write it; its ``content`` is the text of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, cast

from forkgym.agents.base import Turn

Message = Mapping[str, Any]
Tool = Mapping[str, Any]
Kind = Literal["malformed", "unauthorized", "unknown", "large", "context", "over", "busy", "engine"]
Finish = Literal["stop", "length", "stop_text", "calls"]

STATUS: Mapping[Kind, int] = {
    "malformed": 400,
    "unauthorized": 401,
    "unknown": 404,
    "large": 413,
    "context": 400,
    "over": 403,
    "busy": 429,
    "engine": 500,
}
# What stands in the place of arguments that are no JSON object, where the wire has room for objects only.
NOT_AN_OBJECT = "invalid_arguments"
TEXT_ONLY = "this model takes text only"
_LONE = re.compile(rb"\\u[dD][89a-fA-F]")


class Refusal(Exception):  # an answer to a client, not an error of ours
    """A request that gets no completion. Each dialect says it in its own shape; ``STATUS`` has the status codes."""

    def __init__(self, kind: Kind, message: str) -> None:
        super().__init__(message)
        self.kind: Kind = kind
        self.message = message

    @property
    def status(self) -> int:
        return STATUS[self.kind]


@dataclass
class Request:
    """What a client asks for, whatever its dialect.

    ``None`` means not said. ``ignored`` names what was asked for and cannot be had. ``reasoning`` is False if the
    client does not want to see any. ``free`` names tools whose argument is one free text. ``previous`` is the id of an
    earlier reply that the messages go on from.
    """

    messages: list[Message]
    tools: list[Tool] = field(default_factory=list[Tool])
    model: str = ""
    stream: bool = False
    usage: bool = True
    n: int = 1
    stop: tuple[str, ...] = ()
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    logprobs: bool = False
    token_ids: bool = False
    reasoning: bool = True
    free: frozenset[str] = frozenset()
    previous: str = ""
    ignored: list[str] = field(default_factory=list[str])


@dataclass(frozen=True)
class Choice:
    """One sampled turn as the client sees it. ``turn.text`` is cut before the stop text, ``call_ids`` names its calls.

    ``pieces`` are the texts of the single ids, filled in only if the client asked for log-probabilities.
    """

    turn: Turn
    call_ids: tuple[str, ...]
    finish: Finish
    stop_text: str = ""
    ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    pieces: tuple[str, ...] = ()


@dataclass(frozen=True)
class Reply:
    """The choices that answer ``request``. ``id`` is made of lower-case letters and digits."""

    id: str
    request: Request
    choices: tuple[Choice, ...]
    prompt_ids: tuple[int, ...]
    prompt_tokens: int
    sampled_tokens: int
    model: str
    created: int


# An event of a stream: its name, if the dialect names events, and its data.
Event = tuple[str | None, Mapping[str, Any]]


class Dialect(Protocol):
    """One wire format. A module of ``forkgym.agents.gateway.dialects`` is one."""

    name: str
    closing: str  # what ends a stream after the last event, if anything

    def read(self, body: Mapping[str, Any]) -> Request:
        """Raises ``Refusal``."""
        ...

    def whole(self, reply: Reply) -> Mapping[str, Any]:
        """The body of an answer that is not streamed."""
        ...

    def events(self, reply: Reply) -> Iterator[Event]:
        """The same answer, streamed."""
        ...

    def error(self, refusal: Refusal) -> Mapping[str, Any]:
        """The body of a refusal."""
        ...

    def failed(self, refusal: Refusal) -> Event:
        """A refusal in the middle of a stream."""
        ...


def parse_body(data: bytes) -> Mapping[str, Any]:
    """A JSON object from a client. Half a surrogate pair, which JavaScript can send, becomes U+FFFD."""
    try:
        body = json.loads(data.decode("utf-8"), parse_constant=_no_constant)
        if _LONE.search(data):
            body = _mend(body)
    except UnicodeDecodeError as error:
        raise Refusal("malformed", f"the body is not UTF-8: byte {error.start} is {data[error.start]:#04x}") from error
    except RecursionError as error:
        raise Refusal("malformed", "the body is nested too deeply") from error
    except ValueError as error:
        raise Refusal("malformed", f"the body is not JSON: {error}") from error
    return record(body, "the body")


def record(value: Any, where: str, *, optional: bool = False) -> Mapping[str, Any]:
    """``value`` if it is a JSON object. Like all readers here it raises ``Refusal`` and says where.

    Where it is ``optional``, nothing is an empty one.
    """
    if value is None and optional:
        return {}
    if not isinstance(value, dict):
        raise _wrong(where, "an object", value)
    return cast(Mapping[str, Any], value)


def items(value: Any, where: str, *, optional: bool = False) -> Sequence[Any]:
    """``value`` if it is a JSON array; where it is ``optional``, nothing is an empty one."""
    if value is None and optional:
        return []
    if not isinstance(value, list):
        raise _wrong(where, "an array", value)
    return cast(list[Any], value)


def text(value: Any, where: str) -> str:
    """``value`` if it is a text."""
    if not isinstance(value, str):
        raise _wrong(where, "a string", value)
    return value


def integer(value: Any, where: str, least: int = 0) -> int | None:
    """``value`` if it is a whole number of at least ``least``; ``None`` stays ``None``."""
    if value is None:
        return None
    if isinstance(value, bool) or not (isinstance(value, int) or (isinstance(value, float) and value.is_integer())):
        raise _wrong(where, "a whole number", value)
    if value < least:
        raise Refusal("malformed", f"{where}: must be at least {least}, not {value}")
    return int(value)


def number(value: Any, where: str, least: float, most: float) -> float | None:
    """``value`` if it is a number from ``least`` to ``most``; ``None`` stays ``None``."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong(where, "a number", value)
    if not least <= value <= most:
        raise Refusal("malformed", f"{where}: must be from {least:g} to {most:g}, not {value}")
    return float(value)


def flag(value: Any, where: str) -> bool:
    """``value`` if it is true or false; ``None`` is false."""
    if value is not None and not isinstance(value, bool):
        raise _wrong(where, "true or false", value)
    return bool(value)


def texts(value: Any, where: str) -> tuple[str, ...]:
    """Nothing, a text or an array of texts, as a tuple without empty ones."""
    if value is None:
        return ()
    many: Sequence[Any] = [value] if isinstance(value, str) else items(value, where)
    return tuple(filter(None, (text(one, f"{where}[{i}]") for i, one in enumerate(many))))


def parts(content: Any, where: str, kinds: Sequence[str]) -> str:
    """The text of a content that is a text or an array of parts; parts of other ``kinds`` are refused."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    return "\n".join(_words(part, f"{where}[{i}]", kinds) for i, part in enumerate(items(content, where)))


def user(
    content: Any, where: str, kinds: Sequence[str], image: Callable[[Mapping[str, Any], str], Message | None]
) -> Message:
    """A user's message. ``image`` reads a part that is an image into a ``picture``; ``None`` for other parts."""
    if content is None or isinstance(content, str):
        return {"role": "user", "content": content or ""}
    shown: list[Message] = []
    for i, part in enumerate(items(content, where)):
        at = f"{where}[{i}]"
        shown.append(image(record(part, at), at) or {"type": "text", "text": _words(part, at, kinds)})
    return seen(shown)


def seen(shown: Sequence[Message]) -> Message:
    """A user's message of parts as chat completions write them; without an image it is its text alone."""
    words = [part["text"] for part in shown if part["type"] == "text"]
    message: Message = {"role": "user", "content": "\n".join(words)}
    return message if len(words) == len(shown) else {**message, "parts": list(shown)}


def picture(address: str, where: str, detail: Any = None) -> Message:
    """A part that is an image, by a ``data:`` address that holds it or one on the web; ``detail`` is how closely the
    model is to look."""
    if not address.startswith(("data:image/", "https://", "http://")):
        raise Refusal("malformed", f"{where}: an image is given as data:image/... or by an http address")
    options = {} if detail is None else {"detail": text(detail, f"{where}.detail")}
    return {"type": "image_url", "image_url": {"url": address, **options}}


def inline(kind: Any, data: Any, where: str) -> str:
    """The address of an image that stands in the request as base64."""
    return f"data:{text(kind, f'{where}: media type')};base64,{text(data, f'{where}: data')}"


def _words(part: Any, at: str, kinds: Sequence[str]) -> str:
    kind = text(record(part, at).get("type"), f"{at}.type")
    if kind not in kinds:
        raise Refusal("malformed", f"{at}: parts of type {kind!r} cannot be read here; {TEXT_ONLY}")
    return text(part.get("refusal" if kind == "refusal" else "text"), f"{at}.text")


def unfollowed(body: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """Which of the options ``names`` are set to something, and a choice of tools that nothing here can enforce."""
    found = [name for name in names if body.get(name)]
    choice = body.get("tool_choice")
    kind = cast(dict[str, Any], choice).get("type") if isinstance(choice, dict) else choice
    return found if kind in (None, "auto") else [*found, "tool_choice"]


def assistant(content: str, reasoning: str = "", calls: Sequence[tuple[str, str, str]] = ()) -> Message:
    """An assistant's message; ``calls`` are (id, name, arguments as JSON text)."""
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if reasoning:
        message["reasoning_content"] = reasoning
    if calls:
        message["tool_calls"] = [
            {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
            for id, name, arguments in calls
        ]
    return message


def function(name: str, description: Any, parameters: Any, where: str) -> Tool:
    """One tool as OpenAI's chat completions define it."""
    tool: dict[str, Any] = {"name": name}
    if description is not None:
        tool["description"] = text(description, f"{where}.description")
    tool["parameters"] = {"type": "object", "properties": {}} if parameters is None else record(parameters, where)
    return {"type": "function", "function": tool}


def as_object(arguments: str) -> Mapping[str, Any]:
    """Arguments as an object, for wires that have no place for anything else; what is none stands within one."""
    try:
        value = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        value = None
    return cast(dict[str, Any], value) if isinstance(value, dict) else {NOT_AN_OBJECT: arguments}


def fragments(value: str, size: int = 64) -> Iterator[str]:
    """``value`` in pieces, as a stream brings it."""
    for start in range(0, len(value), size):
        yield value[start : start + size]


def _wrong(where: str, wanted: str, value: Any) -> Refusal:
    got = "nothing" if value is None else type(value).__name__
    return Refusal("malformed", f"{where}: expected {wanted}, got {got}")


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _mend(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_mend(one) for one in cast(list[Any], value)]
    if isinstance(value, dict):
        return {_mend(key): _mend(one) for key, one in cast(dict[str, Any], value).items()}
    return value
