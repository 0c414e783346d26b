"""Worker threads that play tickets, each in an environment of its own, and stop when told to."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

from forkgym.agents.base import Completion, Episode, Policy, SamplingParams
from forkgym.agents.errors import HarnessError
from forkgym.agents.loops.recording import cancel, fail
from forkgym.envs.core import CodingEnv
from forkgym.envs.errors import EpisodeOverError
from forkgym.errors import ConfigError
from forkgym.sandboxes.errors import SandboxError

POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Ticket:
    """One attempt: the index of its job and the id of its episode."""

    index: int
    episode: str


Outcome = Episode | BaseException


class Crew:
    """Plays tickets by ``attempt(env, policy, ticket)``. ``blank`` makes the record of one that never got that far."""

    def __init__(
        self,
        env_factory: Callable[[], CodingEnv],
        policy: Policy | None,
        attempt: Callable[[CodingEnv, Policy | None, Ticket], Episode],
        blank: Callable[[Ticket], Episode],
        grace: float,
    ) -> None:
        self._make = env_factory
        self._attempt = attempt
        self._blank = blank
        self._grace = grace
        self._halt = threading.Event()
        self._policy = None if policy is None else _Haltable(policy, self._halt)
        self._todo: queue.SimpleQueue[Ticket | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[tuple[Ticket, Outcome]] = queue.SimpleQueue()
        self._open = 0
        self._lock = threading.Lock()
        self._playing: set[Ticket] = set()
        self._envs: set[CodingEnv] = set()
        self._threads: list[threading.Thread] = []

    @property
    def busy(self) -> bool:
        """True while a ticket has not come back."""
        return self._open > 0

    def start(self, tickets: Sequence[Ticket], workers: int) -> None:
        """Queue the tickets and start at most ``workers`` threads."""
        for ticket in tickets:
            self.put(ticket)
        for n in range(min(workers, len(tickets))):
            self._threads.append(threading.Thread(target=self._work, name=f"forkgym-episode-{n}", daemon=True))
            self._threads[-1].start()

    def put(self, ticket: Ticket) -> None:
        """Queue one more ticket."""
        self._open += 1
        self._todo.put(ticket)

    def wait(self) -> Iterator[tuple[Ticket, Episode]]:
        """The episodes that have ended; waits a moment for the first.

        Raises what a worker could not record, such as a ``ConfigError``.
        """
        timeout = POLL_SECONDS
        while True:
            try:
                ticket, outcome = self._done.get(timeout=timeout)
            except queue.Empty:
                return
            self._open -= 1
            if isinstance(outcome, BaseException):
                raise outcome
            yield ticket, outcome
            timeout = 0.0

    def stop(self) -> list[tuple[Ticket, Episode]]:
        """End the threads and close their environments; returns what was still being played, mostly cancelled.

        Waits ``grace`` seconds for workers that hang in the policy; their episodes are recorded as cancelled.
        """
        hurried = self.busy
        if hurried:
            self._halt.set()
            self._kill_sandboxes()
        for _ in self._threads:
            self._todo.put(None)
        deadline = time.monotonic() + self._grace
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()) if hurried else None)
        with self._lock:
            stuck = sorted(self._playing, key=lambda ticket: ticket.index)
        ended: list[tuple[Ticket, Episode]] = []
        with contextlib.suppress(queue.Empty):
            while True:
                ticket, outcome = self._done.get_nowait()
                if isinstance(outcome, Episode):
                    ended.append((ticket, outcome))
        ended += [(ticket, self._cancelled(ticket)) for ticket in stuck]
        return ended

    def _kill_sandboxes(self) -> None:
        """End the commands that run now. Each worker closes its environment itself, in the middle of nothing."""
        with self._lock:
            envs = list(self._envs)
        for env in envs:
            with contextlib.suppress(SandboxError, EpisodeOverError):
                env.box.close()

    def _cancelled(self, ticket: Ticket) -> Episode:
        episode = self._blank(ticket)
        cancel(episode, "stopped while the policy was still busy")
        return episode

    # ---- in the workers' threads

    def _work(self) -> None:
        env: CodingEnv | None = None
        try:
            while (ticket := self._todo.get()) is not None and not self._halt.is_set():
                with self._lock:
                    self._playing.add(ticket)
                outcome: Outcome
                try:
                    env = env or self._new_env()
                    outcome = self._play(env, ticket)
                except BaseException as error:
                    outcome = self._broken(ticket, error)
                if env is not None and (isinstance(outcome, BaseException) or outcome.status == "failed"):
                    self._drop(env)
                    env = None
                with self._lock:
                    self._playing.discard(ticket)
                    self._done.put((ticket, outcome))
        finally:
            if env is not None:
                self._drop(env)

    def _play(self, env: CodingEnv, ticket: Ticket) -> Episode:
        episode = cast(object, self._attempt(env, self._policy, ticket))  # agents come from anywhere
        if not isinstance(episode, Episode):
            raise HarnessError(f"the agent returned {type(episode).__name__}, not an Episode")
        if self._halt.is_set() and episode.status == "failed":
            cancel(episode, f"stopped: {episode.detail}")  # its sandbox was closed under it
        return episode

    def _broken(self, ticket: Ticket, error: BaseException) -> Outcome:
        if isinstance(error, ConfigError) or not isinstance(error, Exception):
            return error  # raised again in the caller's thread
        episode = self._blank(ticket)
        if self._halt.is_set():
            cancel(episode, f"stopped: {error}")
        else:
            fail(episode, error)
        return episode

    def _new_env(self) -> CodingEnv:
        env = self._make()
        with self._lock:
            self._envs.add(env)
        return env

    def _drop(self, env: CodingEnv) -> None:
        with self._lock:
            self._envs.discard(env)
        with contextlib.suppress(Exception):  # what cannot be removed now, the next gc reaps; the worker goes on
            env.close()


class _Haltable:
    """The policy, until told to halt: then every completion is empty and ``cancelled``."""

    def __init__(self, policy: Policy, halt: threading.Event) -> None:
        self._policy = policy
        self._halt = halt

    @property
    def version(self) -> int:
        return self._policy.version

    def generate(self, prompts: Sequence[Sequence[int]], params: SamplingParams) -> list[Completion]:
        if self._halt.is_set():
            return [Completion((), (), "cancelled", self.version) for _ in prompts]
        return self._policy.generate(prompts, params)

    def close(self) -> None:
        """The policy belongs to the caller."""
