"""A bound on open connections, so that clients which open many and say nothing cannot lock others out."""

from __future__ import annotations

import asyncio
import json
import time
from operator import attrgetter

from uvicorn.protocols.http.h11_impl import H11Protocol

from forkgym.agents.gateway.dialects import chat
from forkgym.agents.gateway.wire import Refusal

GRACE = 1.0  # seconds in which a client has to send its request, and a refused one to read why


def bounded(most: int) -> type[asyncio.Protocol]:
    """A protocol of which a server has at most ``most`` connections.

    One more takes the place of the one that has longest had no whole request, if that is for longer than ``GRACE``.
    Where all others are at work it is told to come again, in the words of ``busy``.
    """

    class Connection(H11Protocol):
        since: float = 0.0  # when it began to have no request
        refused = False
        told = False

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            self.since = time.monotonic()
            super().connection_made(transport)
            if len(self.connections) > most:
                self._make_room()

        def data_received(self, data: bytes) -> None:
            if not self.refused:
                super().data_received(data)
            elif not self.told:
                self.told = True
                self.transport.write(_answer(most))
                self.transport.write_eof()

        def on_response_complete(self) -> None:
            self.since = time.monotonic()
            super().on_response_complete()

        @property
        def idle(self) -> bool:
            cycle = self.cycle
            return cycle is None or cycle.response_complete or cycle.more_body  # pyright: ignore

        def _make_room(self) -> None:
            others = [one for one in self.connections if isinstance(one, Connection) and one is not self and one.idle]
            others.sort(key=attrgetter("since"))
            if others and self.since - others[0].since > GRACE:
                others[0].transport.abort()
                self.connections.discard(others[0])
                return
            self.refused = True
            self.connections.discard(self)
            # Not closed at once: closing while a request arrives would take the answer from the client.
            self.loop.call_later(GRACE, self.transport.abort)

    return Connection


def _answer(most: int) -> bytes:
    refusal = Refusal("busy", f"{most} connections are open, which is the most; try again in a second")
    body = json.dumps(chat.error(refusal)).encode()
    head = (
        f"HTTP/1.1 {refusal.status} Too Many Requests\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\nx-should-retry: true\r\nretry-after: 1\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body
