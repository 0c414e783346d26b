"""Episodes that clients open by naming them, as ``/e/NAME/v1/...``, for a gateway that stands alone."""

from __future__ import annotations

import re
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable

from forkgym.agents.gateway.server import Gateway
from forkgym.agents.gateway.session import Session
from forkgym.agents.gateway.wire import Refusal

DEFAULT = "default"
_NAME = re.compile(r"[\w.:-]{1,100}", re.ASCII)


class Visitors:
    """Opens a session of ``gateway`` for each name that it is asked for; requests decide how they are sampled.

    At most ``most`` are open: then the one that was used longest ago ends, as does one of ``calls`` calls and one whose
    engine failed. A name that comes again after its end is a new episode, ``NAME.2``. ``ended`` gets every session that
    has ended.
    """

    def __init__(
        self,
        gateway: Gateway,
        ended: Callable[[Session], None],
        *,
        seed: int = 0,
        most: int = 1000,
        calls: int = 10_000,
    ) -> None:
        self._gateway, self._ended = gateway, ended
        self._seed, self._most, self._calls = seed, most, calls
        self._open: OrderedDict[str, Session] = OrderedDict()
        self._times: Counter[str] = Counter()
        self._lock = threading.Lock()
        gateway.host(self)

    def admit(self, name: str) -> Session:
        """The session of a name; an empty one is ``default``. Raises ``Refusal``."""
        name = name or DEFAULT
        if not _NAME.fullmatch(name):
            raise Refusal("unknown", f"{name!r} names no episode: take at most 100 letters, digits and . _ : -")
        with self._lock:
            session = self._open.get(name)
            if session is not None and (session.ended.startswith("engine") or len(session.calls) >= self._calls):
                self._end(name)
                session = None
            if session is None:
                session = self._begin(name)
            self._open.move_to_end(name)
            while len(self._open) > self._most:
                self._end(next(iter(self._open)))
        return session

    def end(self, name: str) -> Session | None:
        """End the episode of a name; ``None`` if none is open."""
        name = name or DEFAULT
        with self._lock:
            return self._end(name) if name in self._open else None

    def close(self) -> None:
        """End all."""
        with self._lock:
            for name in list(self._open):
                self._end(name)

    def _begin(self, name: str) -> Session:
        self._times[name] += 1
        episode = name if self._times[name] == 1 else f"{name}.{self._times[name]}"
        self._open[name] = session = self._gateway.begin(episode, None, seed=self._seed, key=name)
        return session

    def _end(self, name: str) -> Session:
        session = self._open.pop(name)
        self._gateway.end(session)
        self._ended(session)
        return session
