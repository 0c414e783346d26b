"""Containers started ahead, so that a fork need not wait for the daemon."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable

from forkgym.sandboxes.docker.container import Config, Container
from forkgym.sandboxes.errors import SandboxError
from forkgym.sandboxes.local import launcher

_log = logging.getLogger(__name__)
_START_PATIENCE = 30.0  # seconds; a daemon that takes longer leaves something for the next start to sweep


class Spares:
    """Idle containers of each configuration that is kept ready: as many as were asked for at once, up to ``most``.

    They live as long as a container like them is in use.
    """

    def __init__(self, start: Callable[[Config], Container], most: int) -> None:
        self._start = start
        self._most = most
        self._used: Counter[Config] = Counter()
        self._idle: dict[Config, list[Container]] = {}  # has the configurations to be kept ready,
        self._wanted: dict[Config, int] = {}  # and how many of each
        self._filling: dict[Config, threading.Thread] = {}
        self._lock = threading.Lock()
        launcher.owned.add(self)

    def take(self, config: Config) -> Container:
        """A running container of this configuration, kept ready or new. Pair it with ``release``."""
        with self._lock:
            self._used[config] += 1
            idle = self._idle.get(config, [])
            ready = idle.pop() if idle else None
        try:
            if ready is not None and ready.alive:
                return ready
            return self._start(config)
        except BaseException:
            self.release(config)
            raise

    def release(self, config: Config) -> None:
        """One container of this configuration is no longer in use."""
        with self._lock:
            self._used[config] -= 1
            unneeded = [] if self._used[config] else self._idle.pop(config, [])
            if not self._used[config]:
                self._wanted.pop(config, None)
        for container in unneeded:
            container.kill()
            container.remove()

    def keep(self, config: Config, count: int) -> None:
        """From now on have ``count`` ready, if not more were wanted before; made in the background."""
        with self._lock:
            if not self._used[config]:
                return
            idle = self._idle.setdefault(config, [])
            self._wanted[config] = min(self._most, max(count, self._wanted.get(config, 0)))
            if len(idle) >= self._wanted[config] or config in self._filling:
                return
            thread = threading.Thread(target=self._fill, args=(config,), name="forkgym-spares", daemon=True)
            self._filling[config] = thread
            thread.start()

    def ready(self, config: Config) -> int:
        """How many are idle."""
        with self._lock:
            return len(self._idle.get(config, []))

    def close(self) -> None:
        """End all that are idle, and start no more. Waits for one that is about to start, which then ends too."""
        with self._lock:
            idle, self._idle = self._idle, {}
            filling = list(self._filling.values())
        for container in [container for containers in idle.values() for container in containers]:
            container.kill()
            container.remove()
        for thread in filling:
            thread.join(_START_PATIENCE)

    def forget(self) -> None:
        """In a forked child of the owner: let go without touching them. The lock may be held by nobody here."""
        self._lock = threading.Lock()
        for container in [container for containers in self._idle.values() for container in containers]:
            container.socket.close()
        self._idle, self._filling = {}, {}

    def _fill(self, config: Config) -> None:
        try:
            while self._wants(config):
                container = self._start(config)
                with self._lock:
                    wanted = config in self._idle
                    if wanted:
                        self._idle[config].append(container)
                if not wanted:
                    container.kill()
                    container.remove()
        except SandboxError as error:
            # Who needs a container makes one, and is told what is wrong.
            _log.warning("no container could be made ready: %s", error)
        finally:
            with self._lock:
                self._filling.pop(config, None)

    def _wants(self, config: Config) -> bool:
        with self._lock:
            return config in self._idle and len(self._idle[config]) < self._wanted[config]
