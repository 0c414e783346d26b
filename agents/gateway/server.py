"""The gateway: an HTTP server in a thread, through which programs that know nothing of ForkGym use a ``Policy``.

    with Gateway(policy, format, port=0) as gateway:
        with gateway.open("episode-1", SamplingParams(max_tokens=512), seed=1) as session:
            run_harness(base_url=f"{session.base_url}/v1", api_key=session.key)
            segments = session.segments()

Needs the extra ``gateway``.
"""

from __future__ import annotations

import os
import socket as sockets
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import uvicorn

from forkgym.agents.base import ChatEndpoint, ChatFormat, Policy, SamplingParams
from forkgym.agents.errors import HarnessError
from forkgym.agents.gateway.asgi import App, Host
from forkgym.agents.gateway.connections import bounded
from forkgym.agents.gateway.session import Session
from forkgym.agents.gateway.sources import make_source
from forkgym.errors import ConfigError


class Gateway:
    """Serves ``policy`` over ``format`` from a thread while it is open.

    With ``format`` of ``None`` it hands messages on to a ``ChatEndpoint``, of which nothing can be trained on.

    Listens on ``socket`` (a path where nothing is yet; anyone who may enter its folder may connect) or on ``host`` and
    ``port`` (0: any). ``concurrency`` calls run at once and ``queue`` more wait; further ones are told to come again. A
    stream that waits longer than ``ping`` seconds gets comments meanwhile. Bodies above ``body_limit`` bytes are
    refused. Of ``connections`` (twice ``concurrency`` + ``queue`` by default) one more closes the one that was idle
    longest. ``model`` is the name that ``/v1/models`` shows.
    """

    def __init__(
        self,
        policy: Policy | ChatEndpoint,
        format: ChatFormat | None,
        *,
        socket: str | os.PathLike[str] | None = None,
        port: int | None = None,
        host: str = "127.0.0.1",
        model: str = "forkgym",
        concurrency: int = 64,
        queue: int = 256,
        connections: int | None = None,
        ping: float = 10.0,
        body_limit: int = 64 * 2**20,
    ) -> None:
        if (socket is None) == (port is None):
            raise ConfigError("a gateway listens on a socket or on a port: give one of them")
        if concurrency < 1 or queue < 0:
            raise ConfigError(f"concurrency must be at least 1 and queue at least 0, not {concurrency} and {queue}")
        self._connections = 2 * (concurrency + queue) if connections is None else connections
        if self._connections < 1:
            raise ConfigError(f"connections must be at least 1, not {connections}")
        self.model = model
        self.url = ""
        self.sessions: dict[str, Session] = {}
        self._source = make_source(policy, format)
        self._socket = None if socket is None else Path(socket)
        self._host, self._port = host, port
        self._app = App(
            self.sessions, model=model, concurrency=concurrency, queue=queue, ping=ping, body_limit=body_limit
        )
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    def host(self, visitors: Host) -> None:
        """Let ``visitors`` open an episode for every client that names one."""
        self._app.visitors = visitors

    def tap(self, seen: Callable[[str, bytes], object]) -> None:
        """Tell ``seen`` each request for a turn: its path below the episode's address, and its body."""
        self._app.tap = seen

    @property
    def running(self) -> int:
        """Calls that run or wait at this moment."""
        return self._app.running

    def __enter__(self) -> Gateway:
        listener = self._listen()
        config = uvicorn.Config(
            self._app, http=bounded(self._connections), ws="none", lifespan="off", log_config=None,
            log_level="critical", access_log=False, server_header=False, timeout_keep_alive=75,
            timeout_graceful_shutdown=1,
        )  # fmt: skip
        self._server = server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=server.run, kwargs={"sockets": [listener]}, name="forkgym-gateway", daemon=True
        )
        self._thread.start()
        while not server.started:
            self._thread.join(0.002)
            if not self._thread.is_alive():
                raise HarnessError("the gateway's server did not start")
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop serving. Calls that still run in the policy end by themselves and belong to no record."""
        for session in list(self.sessions.values()):
            session.close()
        self._app.close()
        if self._server is not None and self._thread is not None:
            self._server.should_exit = True
            self._thread.join()
            if self._socket is not None:
                self._socket.unlink(missing_ok=True)
        self._server = self._thread = None

    @contextmanager
    def open(
        self,
        episode: str,
        sampling: SamplingParams | None,
        *,
        seed: int = 0,
        max_calls: int | None = None,
        max_tokens: int | None = None,
        vary: int | None = None,
    ) -> Generator[Session]:
        """A session of its own address for one episode; afterwards its address is gone, and its record stays.

        ``sampling`` holds for every call, whatever a client asks for; ``None`` follows the clients. ``max_calls`` and
        ``max_tokens`` (sampled) bound the episode. ``vary`` is a seed by which the client's tools and system prompt are
        shown to the model in other words; the client sees its own.
        """
        session = self.begin(episode, sampling, seed=seed, max_calls=max_calls, max_tokens=max_tokens, vary=vary)
        try:
            yield session
        finally:
            self.end(session)

    def begin(
        self,
        episode: str,
        sampling: SamplingParams | None,
        *,
        seed: int = 0,
        max_calls: int | None = None,
        max_tokens: int | None = None,
        vary: int | None = None,
        key: str | None = None,
    ) -> Session:
        """As ``open``, until ``end``. ``key`` is an address that can be guessed, for those who want to choose it."""
        session = Session(
            self._source, episode, sampling, seed=seed, max_calls=max_calls, max_tokens=max_tokens,
            model=self.model, base_url=self.url, key=key, vary=vary,
        )  # fmt: skip
        self.sessions[session.key] = session
        return session

    def end(self, session: Session) -> None:
        """Answer no more calls of ``session``."""
        session.close()
        self.sessions.pop(session.key, None)

    def _listen(self) -> sockets.socket:
        if self._socket is None:
            # asyncio sends small pieces at once only where the protocol is said to be TCP.
            listener = sockets.socket(sockets.AF_INET, sockets.SOCK_STREAM, sockets.IPPROTO_TCP)
        else:
            listener = sockets.socket(sockets.AF_UNIX)
        try:
            if self._socket is None:
                listener.setsockopt(sockets.SOL_SOCKET, sockets.SO_REUSEADDR, 1)
                listener.bind((self._host, self._port or 0))
                self.url = f"http://{self._host}:{listener.getsockname()[1]}"
            else:
                listener.bind(os.fspath(self._socket))
                self._socket.chmod(0o666)  # who may reach the folder may connect: a sandbox has users of its own
            listener.listen(1024)
        except OSError as error:
            listener.close()
            where = self._socket or f"{self._host}:{self._port}"
            raise ConfigError(f"the gateway cannot listen on {where}: {error}") from error
        return listener
