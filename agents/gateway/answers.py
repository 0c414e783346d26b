"""Equal requests have one answer, and the answer is known to have arrived or not."""

from __future__ import annotations

from collections import Counter, OrderedDict
from concurrent.futures import Future
from dataclasses import dataclass, field

from forkgym.agents.gateway.history import Node
from forkgym.agents.gateway.wire import Reply

_REMEMBERED, _REMEMBERED_ARRIVED = 256, 16


@dataclass(eq=False)
class Ticket:
    """One client that waits for an answer. ``key`` is equal for requests that are the same, ``retry`` says that the
    client itself calls it one, or has named the request. ``gone`` and ``arrived`` say how it went."""

    dialect: str
    key: bytes
    request_id: str = ""
    retry: bool = False
    answer: Answer | None = None
    stream: bool = False
    gone: bool = False
    arrived: bool = False


@dataclass(eq=False)
class Answer:
    """The one answer to equal requests: ``nodes`` and ``tokens`` are what was sampled for it."""

    future: Future[Reply] = field(default_factory=Future[Reply])
    tickets: list[Ticket] = field(default_factory=list[Ticket])
    nodes: list[Node] = field(default_factory=list[Node])
    tokens: int = 0
    delivered: bool = False


class Answers:
    """Those of one session. Not safe for use from several threads; ``Session`` holds a lock."""

    def __init__(self, counts: Counter[str]) -> None:
        self._counts = counts
        self._open: OrderedDict[bytes, Answer] = OrderedDict()

    @property
    def waiting(self) -> int:
        """How many are still being sampled."""
        return sum(not answer.future.done() for answer in self._open.values())

    def join(self, ticket: Ticket) -> tuple[Answer, bool]:
        """The answer for a ticket, and whether it is a new one that is still to be sampled."""
        answer = self._open.get(ticket.key)
        new = answer is None or (answer.delivered and not ticket.retry)
        if answer is None or new:
            answer = self._open[ticket.key] = Answer()
            self._forget()
        else:
            self._counts["repeated"] += 1
        self._open.move_to_end(ticket.key)
        answer.tickets.append(ticket)
        ticket.answer = answer
        return answer, new

    def failed(self, ticket: Ticket, answer: Answer) -> None:
        """Forget a failure: asked again, it is tried again. Choices that came before it were given to nobody."""
        for node in answer.nodes:
            node.lost = True
        answer.nodes.clear()
        if self._open.get(ticket.key) is answer:
            del self._open[ticket.key]

    def delivered(self, ticket: Ticket) -> None:
        """The client has got all of it."""
        ticket.arrived = True
        if ticket.answer is not None:
            ticket.answer.delivered = True
            self.settle(ticket.answer)

    def gone(self, ticket: Ticket) -> None:
        """The client hung up before it had it."""
        ticket.gone = True
        self._counts["disconnected"] += 1
        if ticket.answer is not None:
            self.settle(ticket.answer)

    def settle(self, answer: Answer) -> None:
        """Mark the samples of an answer that nobody is left to receive."""
        lost = not answer.delivered and all(ticket.gone for ticket in answer.tickets)
        for node in answer.nodes:
            if not node.children:  # one that was gone on from has arrived
                node.lost = lost

    def _forget(self) -> None:
        """Answers that arrived are kept for late retries, but not many: each holds a whole request."""
        done = [key for key, answer in self._open.items() if answer.future.done()]
        arrived = [key for key in done if self._open[key].delivered]
        for key in {*done[:-_REMEMBERED], *arrived[:-_REMEMBERED_ARRIVED]}:
            del self._open[key]
