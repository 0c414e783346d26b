"""A gateway over a scripted model, and a client that sees what goes over the wire."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from forkgym.agents.base import SamplingParams
from forkgym.agents.formats.chatml import ChatML
from forkgym.agents.gateway.server import Gateway
from forkgym.agents.gateway.session import Session
from forkgym.agents.policies.scripted import ScriptedPolicy
from forkgym.agents.tokenizers import ByteTokenizer

SAMPLING = SamplingParams(max_tokens=500, temperature=1.0)


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def events(self) -> list[Any]:
        """The data of a stream's events, in order; names, if any, must be the data's own type."""
        assert self.headers["content-type"].startswith("text/event-stream")
        found = []
        for block in filter(None, self.text.split("\n\n")):
            lines = [line for line in block.split("\n") if not line.startswith(":")]
            data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
            names = [line.removeprefix("event: ") for line in lines if line.startswith("event: ")]
            assert len(lines) == len(data) + len(names)
            if data and data[0] != "[DONE]":
                found.append(json.loads(data[0]))
                assert not names or names == [found[-1]["type"]]
        return found


@dataclass
class Rig:
    """One gateway, one open session."""

    gateway: Gateway
    session: Session
    policy: Any
    format: Any
    clients: list[http.client.HTTPConnection] = field(default_factory=list)

    def connect(self, body, path="/v1/chat/completions") -> http.client.HTTPConnection:
        """A client that has sent its request and does not read yet."""
        host, port = self.gateway.url.removeprefix("http://").split(":")
        client = http.client.HTTPConnection(host, int(port), timeout=20)
        self.clients.append(client)
        client.request("POST", self.session.path + path, json.dumps(body))
        return client

    def send(self, path: str, body: Any = None, method: str = "POST", session: Session | None = None, **headers):
        host, port = self.gateway.url.removeprefix("http://").split(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=30)
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        where = (session or self.session).path + path
        try:
            connection.request(method, where, data, {k.replace("_", "-"): v for k, v in headers.items()})
            got = connection.getresponse()
            return Answer(got.status, {k.lower(): v for k, v in got.getheaders()}, got.read().decode())
        finally:
            connection.close()

    def chat(self, messages, **options) -> Answer:
        return self.send("/v1/chat/completions", {"model": "any", "messages": messages, **options})

    def sampled(self, **options) -> list[tuple[int, float, int]]:
        """Every (id, logprob, version) of the session that is marked as sampled, in order."""
        found = []
        for segment in self.session.segments(**options):
            rows = zip(segment.ids, segment.logprobs, segment.version, segment.sampled, strict=True)
            found += [(id, logprob, version) for id, logprob, version, mine in rows if mine]
        return found


@pytest.fixture
def rig() -> Iterator[Callable[..., Rig]]:
    """``rig(script, ...)``: a served script. Options of the session and of the gateway go where they belong."""
    closing: list[Any] = []
    made: list[Rig] = []

    def make(
        script, *, tokenizer=None, format=None, policy=None, sampling=SAMPLING, gateway=None, text=False, **options
    ):
        tokenizer = tokenizer or ByteTokenizer()
        format = None if text else format or ChatML(tokenizer)
        policy = policy or ScriptedPolicy(script, tokenizer)
        served = Gateway(policy, format, port=0, **(gateway or {}))
        served.__enter__()
        closing.append(served)
        opened = served.open("episode", sampling, **options)
        session = opened.__enter__()
        closing.append(opened)
        made.append(Rig(served, session, policy, format))
        return made[-1]

    yield make
    for client in (client for one in made for client in one.clients):
        client.close()
    for one in reversed(closing):
        one.__exit__(None, None, None)
