"""JSON over HTTP for policies: kept connections, bounded concurrency, retries, and errors that say what happened."""

from __future__ import annotations

import http.client
import json
import random
import socket
import threading
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import urlsplit

from forkgym.agents.errors import PolicyError
from forkgym.errors import ConfigError

RETRIED = frozenset({408, 425, 429, 500, 502, 503, 504})
LARGEST = 256 * 1024 * 1024
_BROKEN = (OSError, http.client.HTTPException)


class StatusError(PolicyError):
    """The server refused a request; ``status`` is HTTP's, ``text`` what it said."""

    def __init__(self, where: str, status: int, text: str) -> None:
        super().__init__(f"{where} answered {status}: {text[:500] or 'nothing'}")
        self.status, self.text = status, text


class JsonClient:
    """Calls below ``url``, from any thread; at most ``concurrency`` at once. Connects when first called.

    A call that meets a broken connection, a timeout or a status in ``RETRIED`` is sent again, up to ``retries`` times,
    after 0.5, 1, 2, ... seconds (a little less or more), or as the server says in ``Retry-After``. Redirects are not
    followed, so that ``key``, sent as a bearer token, stays with this server. Environment proxies are not used.
    """

    def __init__(
        self, url: str, key: str | None, *, concurrency: int, timeout: float, retries: int, pause: float = 0.5
    ) -> None:
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError as error:
            raise ConfigError(f"endpoint {url!r}: {error}") from error
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"endpoint {url!r} must be a URL such as http://127.0.0.1:8000/v1")
        if parts.username or parts.query:
            raise ConfigError(f"endpoint {parts.hostname}: keys come from the environment, not from the URL")
        if concurrency < 1 or retries < 0 or timeout <= 0:
            raise ConfigError("concurrency must be at least 1, retries at least 0, timeout above 0 seconds")
        self.url = url.rstrip("/")
        self._make = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._host, self._port, self._base = parts.hostname, port, parts.path.rstrip("/")
        self._site = f"{parts.scheme}://{parts.netloc}"
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"
        self._timeout, self._retries, self._pause = timeout, retries, pause
        self._idle: list[http.client.HTTPConnection] = []
        self._lock = threading.Lock()
        self._room = threading.BoundedSemaphore(concurrency)
        self._closed = threading.Event()

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None, *, root: bool = False) -> Any:
        """The JSON that the server answers. ``root``: ``path`` is below the host, not below the URL.

        Raises ``StatusError`` if the server refuses, ``PolicyError`` if it cannot be reached or answers no JSON.
        """
        target = path if root else self._base + path
        where = f"{method} {self._site}{target}"
        data = None if body is None else json.dumps(body, allow_nan=False).encode()
        with self._room:
            for left in range(self._retries, -1, -1):
                if self._closed.is_set():
                    raise PolicyError(f"{where}: the policy is closed")
                try:
                    status, text, wait = self._send(method, target, data)
                except _BROKEN as error:
                    if left:
                        self._sleep(left, None)
                        continue
                    raise PolicyError(
                        f"{where} failed {self._retries + 1} times, the last with {type(error).__name__}: {error}. "
                        "Is the server up?"
                    ) from error
                if status in RETRIED and left:
                    self._sleep(left, wait)
                    continue
                return _read(where, status, text)
        raise AssertionError("unreachable: the last try returns or raises")

    def close(self) -> None:
        """Close idle connections; calls that wait to be sent again fail. Idempotent."""
        self._closed.set()
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _send(self, method: str, target: str, data: bytes | None) -> tuple[int, bytes, str | None]:
        """One request: status, body, ``Retry-After``. A kept connection that the server has closed is replaced."""
        with self._lock:
            kept = self._idle.pop() if self._idle else None
        if kept is not None:
            try:
                return self._exchange(kept, method, target, data)
            except (ConnectionError, http.client.BadStatusLine):
                pass  # closed while it was idle: nothing was answered
        return self._exchange(self._make(self._host, self._port, timeout=self._timeout), method, target, data)

    def _exchange(
        self, connection: http.client.HTTPConnection, method: str, target: str, data: bytes | None
    ) -> tuple[int, bytes, str | None]:
        done = False
        try:
            if connection.sock is None:
                connection.connect()
                cast(socket.socket, connection.sock).setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.request(method, target, data, self._headers)
            response = connection.getresponse()
            text = _body_of(response)
            done = not response.will_close and response.isclosed()
            return response.status, text, response.headers.get("Retry-After")
        finally:
            if done and not self._closed.is_set():
                with self._lock:
                    self._idle.append(connection)
            else:
                connection.close()

    def _sleep(self, left: int, wait: str | None) -> None:
        pause = self._pause * 2 ** (self._retries - left) * random.uniform(0.8, 1.2)
        if wait is not None and wait.strip().isdecimal():
            pause = max(pause, float(wait))
        self._closed.wait(min(pause, 60.0))


def _body_of(response: http.client.HTTPResponse) -> bytes:
    """The whole body; one that is cut short raises ``IncompleteRead``, which ``read(n)`` would not."""
    pieces, left = list[bytes](), LARGEST
    if response.length is not None and response.length <= LARGEST:
        return response.read()
    while piece := response.read(min(1 << 20, left)):
        pieces.append(piece)
        left -= len(piece)
        if left <= 0:
            raise PolicyError(f"the server's answer is longer than {LARGEST >> 20} MiB")
    return b"".join(pieces)


def _read(where: str, status: int, text: bytes) -> Any:
    shown = text[:2000].decode("utf-8", errors="replace").strip()
    if 300 <= status < 400:
        raise PolicyError(f"{where} redirects; give the URL that it redirects to")
    if status != 200:
        raise StatusError(where, status, shown)
    try:
        return json.loads(text)
    except ValueError as error:
        raise PolicyError(f"{where} answered no JSON ({error}): {shown[:200]!r}") from error
