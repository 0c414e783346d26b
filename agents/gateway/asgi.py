"""The gateway's ASGI application: finds the episode and the dialect of a request, samples in a worker thread, answers.

It knows who waits: a client that hangs up is noticed, one that comes again gets the answer it missed.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from asyncio import Future
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from starlette.requests import ClientDisconnect
from starlette.requests import Request as Http
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from forkgym.agents.gateway.answers import Ticket
from forkgym.agents.gateway.routes import Route, dialect_of, route, split
from forkgym.agents.gateway.session import Session
from forkgym.agents.gateway.wire import Dialect, Event, Refusal, parse_body

_IDS = ("idempotency-key", "x-request-id")
_STREAM = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
_PIECE = 16 * 1024
_T = TypeVar("_T")
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Answer:
    """What goes out: a response, or the pieces of a stream. ``failed`` is a refusal as an event of a stream."""

    response: Response | None = None
    pieces: tuple[bytes, ...] = ()
    failed: bytes = b""


class Host(Protocol):
    """Opens and ends the episodes of clients that name them themselves; an empty name is that of no name."""

    def admit(self, name: str) -> Session: ...

    def end(self, name: str) -> Session | None: ...


class App:
    """Serves ``sessions``, by key. ``running`` counts calls that run or wait, those of clients that hung up too.

    ``tap`` is told the path, with its query, and the body of each request for a turn.
    """

    def __init__(
        self, sessions: dict[str, Session], *, model: str, concurrency: int, queue: int, ping: float, body_limit: int
    ) -> None:
        self.sessions = sessions
        self.running = 0
        self.visitors: Host | None = None
        self.tap: Callable[[str, bytes], object] | None = None
        self._model = model
        self._most = concurrency + queue
        self._ping, self._body_limit = ping, body_limit
        self._workers = ThreadPoolExecutor(concurrency, "forkgym-gateway-call")

    def close(self) -> None:
        """Start no more calls; those that run end by themselves."""
        self._workers.shutdown(wait=False, cancel_futures=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        http = Http(scope, receive)
        key, path = split(http.url.path)
        found = route(path) if http.method == "POST" else None
        dialect = found.dialect if found else dialect_of(path)
        try:
            session = self._session(http, key)
            if found is None:
                response = self._look(http, session, path)
            else:
                if found.said.get("stream") and http.query_params.get("alt") != "sse":
                    raise Refusal("malformed", "streams are sent as events only: ask for streamGenerateContent?alt=sse")
                body = await self._body(http)
                if found.counted is None:
                    await self._sample(http, send, self._needed(session, key), found, body)
                    return
                response = await self._work(lambda: _count(self._needed(session, key), found, body))
        except ClientDisconnect:
            return
        except Refusal as refusal:
            response = _refused(dialect, refusal)
        except Exception as error:
            response = _refused(dialect, _fault(error))
        await response(scope, receive, send)

    def _session(self, http: Http, key: str) -> Session | None:
        """The episode of a request, by its path or its API key; the two must not name different ones."""
        given = http.headers.get("x-api-key") or http.headers.get("x-goog-api-key") or http.query_params.get("key")
        given = given or http.headers.get("authorization", "").removeprefix("Bearer ")
        by_key, by_path = self.sessions.get(given), self.sessions.get(key)
        if self.visitors is not None:  # names can be guessed, and clients must send some key: it says nothing
            by_key = None
        if by_path is not None and by_key is not None and by_key is not by_path:
            raise Refusal("unauthorized", "the API key is that of another episode")
        if key and by_path is None and self.visitors is None:
            raise Refusal("unauthorized", "no episode is open at this address")
        return by_path or (by_key if not key else None)

    def _needed(self, session: Session | None, key: str) -> Session:
        """The session that answers: a visitor's may be a new one."""
        if self.visitors is not None:
            return self.visitors.admit(key)
        if session is None:
            raise Refusal("unauthorized", "this address names no episode, and neither does the API key")
        return session

    async def _body(self, http: Http) -> bytes:
        encoding = http.headers.get("content-encoding", "identity")
        if encoding != "identity":
            raise Refusal("malformed", f"bodies are taken as they are, not as {encoding!r}: switch compression off")
        data = bytearray()
        async for piece in http.stream():
            data += piece
            if len(data) > self._body_limit:
                raise Refusal("large", f"the body has more than {self._body_limit} bytes")
        return bytes(data)

    def _look(self, http: Http, session: Session | None, path: str) -> Response:
        """What is not a call of the model."""
        if http.method == "DELETE" and path == "/" and self.visitors is not None:
            ended = self.visitors.end(split(http.url.path)[0])
            if ended is None:
                raise Refusal("unknown", "no episode of this name is open")
            return _json({**ended.describe(), "episode": ended.episode})
        if http.method not in ("GET", "HEAD"):
            raise Refusal("unknown", f"{http.method} {http.url.path} is not served here")
        if path in ("", "/"):
            return _json({"status": "ok"} if session is None else session.describe())
        model = {"id": self._model, "object": "model", "created": 0, "owned_by": "forkgym", "type": "model",
                 "display_name": self._model, "created_at": "1970-01-01T00:00:00Z"}  # fmt: skip
        if path == "/models":
            return _json({"object": "list", "data": [model], "has_more": False})
        if path == f"/models/{self._model}":
            return _json(model)
        raise Refusal("unknown", f"{http.method} {http.url.path} is not served here")

    async def _sample(self, http: Http, send: Send, session: Session, found: Route, body: bytes) -> None:
        if self.tap is not None:
            below = http.url.path.removeprefix(session.path)
            self.tap(f"{below}?{http.url.query}" if http.url.query else below, body)
        ticket = _ticket(http, found, body)
        work = self._work(lambda: _answer(session, found, ticket, body))
        await _Exchange(http, send, session, ticket, self._ping).run(work)

    def _work(self, work: Callable[[], _T]) -> Future[_T]:
        """Run ``work`` in a thread, to its end whatever becomes of the client."""
        if self.running >= self._most:
            raise Refusal("busy", "too many calls run and wait; try again in a second")
        future = asyncio.get_running_loop().run_in_executor(self._workers, work)
        self.running += 1
        future.add_done_callback(self._ran)
        return future

    def _ran(self, future: Future[Any]) -> None:
        self.running -= 1


class _Exchange:
    """One answer to one client, which may hang up at any time."""

    def __init__(self, http: Http, send: Send, session: Session, ticket: Ticket, ping: float) -> None:
        self._http, self._send = http, send
        self._session, self._ticket = session, ticket
        self._ping = ping
        self._streaming = False

    async def run(self, work: Future[_Answer]) -> None:
        """Wait for the answer and send it. The session is told whether the client has got it."""
        hangup = asyncio.ensure_future(_hangup(self._http))
        try:
            while not work.done() and not hangup.done():
                await asyncio.wait({work, hangup}, timeout=self._ping, return_when=asyncio.FIRST_COMPLETED)
                if self._ticket.stream and not work.done() and not hangup.done():
                    await self._more(b": ping\n\n")
            if not hangup.done():
                await self._deliver(work.result(), hangup)
            if hangup.done() and not self._ticket.arrived:
                self._session.gone(self._ticket)
        finally:
            hangup.cancel()

    async def _deliver(self, answer: _Answer, hangup: Future[None]) -> None:
        if not self._streaming and not answer.pieces:
            self._session.delivered(self._ticket)
            response = answer.response or Response()
            await response(self._http.scope, self._http.receive, self._send)
            return
        for piece in answer.pieces or (answer.failed,):
            await self._more(piece)
            await asyncio.sleep(0)  # lets a hang-up be noticed
            if hangup.done():
                return
        self._session.delivered(self._ticket)
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _more(self, piece: bytes) -> None:
        if not self._streaming:
            self._streaming = True
            await self._send({"type": "http.response.start", "status": 200, "headers": _STREAM})
        await self._send({"type": "http.response.body", "body": piece, "more_body": True})


def _answer(session: Session, found: Route, ticket: Ticket, body: bytes) -> _Answer:
    """Read, sample and render, in a worker thread. Raises nothing."""
    dialect = found.dialect
    try:
        request = dialect.read({**parse_body(body), **found.said})
        ticket.stream = request.stream
        reply = session.answer(ticket, request)
        if not request.stream:
            return _Answer(_json(dialect.whole(reply)))
        whole = "".join(map(_sse, dialect.events(reply))) + dialect.closing
        data = whole.encode()
        return _Answer(pieces=tuple(data[i : i + _PIECE] for i in range(0, len(data), _PIECE)))
    except Refusal as error:
        refusal = error
    except Exception as error:
        refusal = _fault(error)
    return _Answer(_refused(dialect, refusal), failed=_sse(dialect.failed(refusal)).encode())


def _fault(error: Exception) -> Refusal:
    """A mistake of the gateway itself, logged."""
    _log.error("a request failed in the gateway", exc_info=error)
    return Refusal("engine", f"the gateway failed: {type(error).__name__}: {error}")


def _count(session: Session, found: Route, body: bytes) -> Response:
    assert found.counted is not None
    tokens = session.count(found.dialect.read({**parse_body(body), **found.said}))
    return _json(found.counted(tokens))


def _ticket(http: Http, found: Route, body: bytes) -> Ticket:
    named = next((value for name in _IDS if (value := http.headers.get(name))), "")
    tried = http.headers.get("x-stainless-retry-count", "0") != "0"
    path = json.dumps([found.dialect.name, found.said, named])
    key = hashlib.blake2b(path.encode() + body, digest_size=16).digest()
    return Ticket(found.dialect.name, key, named, retry=tried or bool(named))


async def _hangup(http: Http) -> None:
    while (await http.receive())["type"] != "http.disconnect":
        pass


def _json(value: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(json.dumps(value), status, headers, "application/json")


def _refused(dialect: Dialect, refusal: Refusal) -> Response:
    headers = {"x-should-retry": "true", "retry-after": "1"} if refusal.kind == "busy" else {"x-should-retry": "false"}
    return _json(dialect.error(refusal), refusal.status, headers)


def _sse(event: Event) -> str:
    name, data = event
    return (f"event: {name}\n" if name else "") + f"data: {json.dumps(data)}\n\n"
