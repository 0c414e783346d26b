"""Threads that hand tickets to workers, each with an environment of its own, and stop when told to.

A *workplace* makes the workers: here (``agents/workers.py``) or in other processes (``agents/ray_workers.py``).
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from forkgym.agents.base import Episode, Policy
from forkgym.agents.loops.recording import cancel
from forkgym.envs.core import CodingEnv

POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Ticket:
    """One attempt: the index of its job and the id of its episode."""

    index: int
    episode: str


Outcome = Episode | BaseException


@dataclass(frozen=True)
class Parts:
    """What workers are made of: environments, the policy, how a ticket is played, and its record if it never began."""

    env_factory: Callable[[], CodingEnv]
    policy: Policy | None
    attempt: Callable[[CodingEnv, Policy | None, Ticket], Episode]
    blank: Callable[[Ticket], Episode]


class Worker(Protocol):
    """Plays one ticket at a time. ``halt`` comes from another thread."""

    def play(self, ticket: Ticket) -> Outcome:
        """The episode, whatever happened to it, or an exception that the caller of ``collect`` must see."""
        ...

    def halt(self, ticket: Ticket, why: str) -> None:
        """End the ticket soon, as cancelled, if it is still being played."""
        ...

    def close(self) -> None: ...


class Workplace(Protocol):
    """Where workers work."""

    def worker(self) -> Worker:
        """One more worker. Nothing that can fail happens before it plays."""
        ...

    def close(self) -> None:
        """End what is left, workers that hang included."""
        ...


class Crew:
    """Plays tickets in the order they come, by as many workers as there are threads."""

    def __init__(self, workplace: Workplace, blank: Callable[[Ticket], Episode], grace: float) -> None:
        self._workplace = workplace
        self._blank = blank
        self._grace = grace
        self._todo: deque[Ticket] = deque()
        self._ending = False
        self._changed = threading.Condition()
        self._playing: dict[Ticket, Worker] = {}
        self._done: queue.SimpleQueue[tuple[Ticket, Outcome]] = queue.SimpleQueue()
        self._open = 0
        self._threads: list[threading.Thread] = []

    @property
    def busy(self) -> bool:
        """True while a ticket has not come back."""
        return self._open > 0

    def start(self, tickets: Iterable[Ticket], workers: int) -> None:
        """Queue the tickets and start at most ``workers`` threads."""
        for ticket in tickets:
            self.put(ticket)
        for n in range(min(workers, self._open)):
            self._threads.append(threading.Thread(target=self._work, name=f"forkgym-episode-{n}", daemon=True))
            self._threads[-1].start()

    def put(self, ticket: Ticket) -> None:
        """Queue one more ticket."""
        with self._changed:
            self._open += 1
            self._todo.append(ticket)
            self._changed.notify()

    def withdraw(self, indices: Iterable[int] | None = None) -> list[Ticket]:
        """Take back the tickets that nobody has begun: of these jobs, or all."""
        with self._changed:
            wanted = None if indices is None else set(indices)
            back = [ticket for ticket in self._todo if wanted is None or ticket.index in wanted]
            for ticket in back:
                self._todo.remove(ticket)
            self._open -= len(back)
        return back

    def halt(self, indices: Iterable[int], why: str) -> None:
        """End what is being played of these jobs; the episodes come back cancelled."""
        wanted = set(indices)
        with self._changed:
            playing = [(ticket, worker) for ticket, worker in self._playing.items() if ticket.index in wanted]
        for ticket, worker in playing:
            worker.halt(ticket, why)

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
        """End the threads and their workers; returns what was still being played, mostly cancelled.

        Waits ``grace`` seconds for workers that hang in the policy; their episodes are recorded as cancelled.
        """
        hurried = self.busy
        with self._changed:
            self._ending = True
            self._todo.clear()
            self._changed.notify_all()
            playing = list(self._playing.items())
        for ticket, worker in playing:
            worker.halt(ticket, "stopped")
        deadline = time.monotonic() + self._grace
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()) if hurried else None)
        with self._changed:
            stuck = sorted(self._playing, key=lambda ticket: ticket.index)
        ended: list[tuple[Ticket, Episode]] = []
        while not self._done.empty():
            ticket, outcome = self._done.get()
            if isinstance(outcome, Episode):
                ended.append((ticket, outcome))
        ended += [(ticket, self._cancelled(ticket)) for ticket in stuck]
        self._workplace.close()
        return ended

    def _cancelled(self, ticket: Ticket) -> Episode:
        episode = self._blank(ticket)
        cancel(episode, "stopped while the policy was still busy")
        return episode

    def _work(self) -> None:
        worker = self._workplace.worker()
        try:
            while (ticket := self._next(worker)) is not None:
                try:
                    outcome: Outcome = worker.play(ticket)
                except BaseException as error:  # of the worker itself; the caller must see it
                    outcome = error
                with self._changed:
                    del self._playing[ticket]
                    self._done.put((ticket, outcome))
        finally:
            worker.close()

    def _next(self, worker: Worker) -> Ticket | None:
        """The next ticket, once there is one; ``None`` at the end."""
        with self._changed:
            while not self._todo and not self._ending:
                self._changed.wait()
            if self._ending:
                return None
            ticket = self._todo.popleft()
            self._playing[ticket] = worker
            return ticket
