"""What the paths of the gateway mean."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from forkgym.agents.gateway.dialects import chat, gemini, messages, responses
from forkgym.agents.gateway.wire import Dialect

_EPISODE = re.compile(r"/e/([^/]+)(/.*)?")
_VERSION = re.compile(r"(/v1(beta|alpha)?)+(?=/|$)")
_GEMINI = re.compile(r"/models/(.+):(\w+)")


@dataclass(frozen=True)
class Route:
    """A path that takes requests of ``dialect``. ``counted`` makes the answer where tokens are only counted; ``said``
    is what the path itself says of the request."""

    dialect: Dialect
    counted: Callable[[int], Mapping[str, Any]] | None = None
    said: Mapping[str, Any] = field(default_factory=dict[str, Any])


_ROUTES = {
    "/chat/completions": Route(chat),
    "/messages": Route(messages),
    "/messages/count_tokens": Route(messages, messages.counted),
    "/responses": Route(responses),
    "/responses/input_tokens": Route(responses, responses.counted),
}


def split(path: str) -> tuple[str, str]:
    """The key of an episode in a path, and the path without it, its version and its last slash."""
    found = _EPISODE.fullmatch(path)
    key, rest = (found[1], found[2] or "/") if found else ("", path)
    version = _VERSION.match(rest)
    return key, (rest[version.end() :] if version else rest).rstrip("/") or "/"


def dialect_of(path: str) -> Dialect:
    """In which dialect to refuse a path without key and version, which takes no requests."""
    if re.match(r"/models/[^/]+:", path):
        return gemini
    return messages if re.match("/messages(/|$)", path) else chat


def route(path: str) -> Route | None:
    """What a path without key and version takes; ``None`` if it takes no requests."""
    found = _GEMINI.fullmatch(path)
    if found is None:
        return _ROUTES.get(path)
    model, way = found.groups()
    if way == "countTokens":
        return Route(gemini, gemini.counted, {"model": model})
    if way in ("generateContent", "streamGenerateContent"):
        return Route(gemini, None, {"model": model, "stream": way.startswith("stream")})
    return None
