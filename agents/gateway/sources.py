"""Who answers a call: a policy, by token ids, or a chat endpoint, by text that cannot be trained on."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, cast

from forkgym.agents.base import ChatEndpoint, ChatFormat, Completion, Policy, SamplingParams, Turn
from forkgym.agents.errors import HarnessError, PolicyError
from forkgym.agents.gateway.history import Place
from forkgym.agents.gateway.wire import TEXT_ONLY, Message, Refusal, Tool
from forkgym.agents.loops.sampling import sample, turn_seed
from forkgym.errors import ConfigError, ForkGymError


@dataclass(frozen=True)
class Call:
    """What is sampled from: ``prompt``, of which ``known`` ids were in the stream already."""

    place: Place
    tools: Sequence[Tool]
    prompt: list[int]
    known: int
    params: SamplingParams


@dataclass(frozen=True)
class Sampled:
    """One sampled turn, its words as sampled, and how many tokens they are."""

    completion: Completion
    turn: Turn
    text: str
    tokens: int


class Source(Protocol):
    """``untrainable`` says why its turns cannot be trained on; it is empty if they can."""

    untrainable: str

    def render(self, place: Place, ids: list[int], tools: Sequence[Tool]) -> list[int]:
        """The ids that the request adds to ``ids``."""
        ...

    def number(self, call: Call) -> int:
        """A number that follows from the prompt alone."""
        ...

    def sample(self, call: Call, seed: int, number: int) -> Sampled: ...

    def pieces(self, completion: Completion) -> tuple[str, ...]:
        """The text of each id by itself."""
        ...


class TokenSource:
    """A policy over a chat format."""

    untrainable = ""

    def __init__(self, policy: Policy, format: ChatFormat) -> None:
        self._policy, self._format = policy, format

    def render(self, place: Place, ids: list[int], tools: Sequence[Tool]) -> list[int]:
        """The new ids. Raises ``HarnessError`` if the format touches the old ones, and ``Refusal`` for images."""
        if any("parts" in message for message in place.rest):
            raise Refusal("malformed", f"images cannot be read; {TEXT_ONLY}")
        if place.node is None:
            return self._format.start(place.rest, tools)
        extended = self._format.extend(ids, place.rest)
        if extended[: len(ids)] != ids:
            raise HarnessError(f"chat format {self._format.name!r} rewrote tokens that were already in the stream")
        return extended[len(ids) :]

    def number(self, call: Call) -> int:
        return _number(array("q", call.prompt).tobytes())

    def sample(self, call: Call, seed: int, number: int) -> Sampled:
        stop_ids = self._format.stop_ids
        completion = sample(self._policy, call.prompt, call.params, seed=seed, turn=number, stop_ids=stop_ids)
        ids = completion.ids
        return Sampled(completion, self._format.parse(ids), self._format.decode(ids), len(ids))

    def pieces(self, completion: Completion) -> tuple[str, ...]:
        return tuple(self._format.decode([id]) for id in completion.ids)


class TextSource:
    """A server that answers messages. It renders them itself, anew for each call."""

    untrainable = "the server gives text and no token ids"

    def __init__(self, endpoint: ChatEndpoint) -> None:
        self._endpoint = endpoint

    def render(self, place: Place, ids: list[int], tools: Sequence[Tool]) -> list[int]:
        return []

    def number(self, call: Call) -> int:
        return _number(call.place.keys[-1])

    def sample(self, call: Call, seed: int, number: int) -> Sampled:
        """Raises ``PolicyError`` for all that goes wrong in the server."""
        params = replace(call.params, seed=turn_seed(seed, number, call.params.seed))
        try:
            reply = self._endpoint.reply([_spoken(message) for message in call.place.messages], call.tools, params)
        except ForkGymError:
            raise
        except Exception as error:
            raise PolicyError(f"the server's client raised {type(error).__name__}: {error}") from error
        return Sampled(Completion((), (), reply.finish_reason), reply.turn, reply.turn.text, reply.tokens)

    def pieces(self, completion: Completion) -> tuple[str, ...]:
        raise Refusal("malformed", "logprobs: the server behind this gateway gives none")


def make_source(policy: Policy | ChatEndpoint, format: ChatFormat | None) -> Source:
    """With a format the policy samples ids; without one the endpoint answers messages. Raises ``ConfigError``."""
    wanted = "generate" if format is not None else "reply"
    if not hasattr(policy, wanted):
        need = "needs no chat format" if format is not None else "samples token ids: give the gateway a chat format"
        raise ConfigError(f"{type(policy).__name__} {need}")
    return TextSource(cast("ChatEndpoint", policy)) if format is None else TokenSource(cast("Policy", policy), format)


def _spoken(message: Message) -> Message:
    """As a server of chat completions takes it, images included."""
    return {"role": message["role"], "content": message["parts"]} if "parts" in message else message


def _number(data: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big")
