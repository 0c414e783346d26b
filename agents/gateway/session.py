"""One episode behind the gateway: its budget, its sampling, its calls, and retries that never sample twice."""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from forkgym.agents.base import Completion, SamplingParams, Segment, Turn
from forkgym.agents.errors import ContextLengthError
from forkgym.agents.formats.calls import typed_calls
from forkgym.agents.gateway.answers import Answer, Answers, Ticket
from forkgym.agents.gateway.disguise import Disguise
from forkgym.agents.gateway.history import History, Node, Place, StreamKind, normalise
from forkgym.agents.gateway.sources import Call, Sampled, Source
from forkgym.agents.gateway.wire import Choice, Finish, Message, Refusal, Reply, Request, assistant
from forkgym.errors import ConfigError, ForkGymError

ALL: tuple[StreamKind, ...] = ("main", "subagent", "side")
DEFAULT_TOKENS = 4096  # of one turn, where neither the client nor the run says how many
MOST_CHOICES = 16


@dataclass(eq=False)
class CallRecord:
    """One sampled turn, or one call that got none (``error`` says why).

    ``cause`` is empty where the call continues a token stream. ``messages`` are those that the request added,
    ``turn`` is what the model said, ``text`` its words as sampled. ``finish`` is the completion's. ``seconds`` are wall
    seconds in the policy, ``started`` is Unix time. ``disconnected`` is True while no client has got the answer.
    ``ignored`` names options of the request that were not followed, ``sampling`` is what was done instead.
    """

    dialect: str
    request_id: str
    started: float
    cause: str = ""
    messages: tuple[Message, ...] = ()
    turn: Turn | None = None
    text: str = ""
    prompt_tokens: int = 0
    sampled_tokens: int = 0
    finish: str = ""
    seconds: float = 0.0
    error: str = ""
    ignored: tuple[str, ...] = ()
    sampling: SamplingParams | None = None
    node: Node | None = field(default=None, repr=False)

    @property
    def kind(self) -> StreamKind:
        """Whether the call belongs to the task itself; known for sure only when the episode is over."""
        return "main" if self.node is None else self.node.kind

    @property
    def disconnected(self) -> bool:
        return self.node is not None and self.node.lost


class Session:
    """Made by ``Gateway.open``. ``path`` and ``key`` name it, ``base_url`` is set where the gateway listens on TCP.

    ``sampling`` of ``None`` follows each request. ``vary`` is the seed of a ``Disguise``. ``counts`` counts causes of
    new streams, differences that were ``kept:...``, and what was ``overridden:...`` or ``ignored:...``. ``ended`` says
    why no more is sampled: ``calls``, ``tokens``, ``context`` (the last prompt did not fit; a shorter one is served
    again), ``cancelled`` or ``engine: ...``.
    """

    def __init__(
        self,
        source: Source,
        episode: str,
        sampling: SamplingParams | None,
        *,
        seed: int = 0,
        max_calls: int | None = None,
        max_tokens: int | None = None,
        model: str = "forkgym",
        base_url: str = "",
        key: str | None = None,
        vary: int | None = None,
    ) -> None:
        for name, value in (("max_calls", max_calls), ("max_tokens", max_tokens)):
            if value is not None and value < 1:
                raise ConfigError(f"{name} must be at least 1, not {value}")
        self.episode = episode
        self.sampling = sampling
        self.seed = seed
        self.model = model
        self.key = secrets.token_urlsafe(24) if key is None else key
        self.path = f"/e/{self.key}"
        self.base_url = f"{base_url}{self.path}" if base_url else ""
        self.calls: list[CallRecord] = []
        self.ended = ""
        self.closed = False
        self.sampled_tokens = 0
        self._source = source
        self._disguise = None if vary is None else Disguise(vary)
        self._max_calls, self._max_tokens = max_calls, max_tokens
        self._history = History()
        self._begun = 0
        self._prompts: Counter[int] = Counter()
        self._answers = Answers(self._history.counts)
        self._replies: dict[str, Node] = {}
        self._lock = threading.RLock()
        self._asked, self._busy = time.monotonic(), 0

    @property
    def untrainable(self) -> str:
        """Why nothing of this session can be trained on; empty if it can."""
        return self._source.untrainable

    @property
    def trainable(self) -> bool:
        return not self.untrainable

    @property
    def counts(self) -> Counter[str]:
        return self._history.counts

    @property
    def idle(self) -> float:
        """Seconds since the last call, or since the session began; 0 while a call is being answered."""
        with self._lock:
            return 0.0 if self._busy else time.monotonic() - self._asked

    def segments(self, include: Collection[StreamKind] = ALL) -> list[Segment]:
        """The token streams of the calls that a client got, each sampled token once. Safe at any time.

        None if the session is not ``trainable``.
        """
        if self.untrainable:
            return []
        with self._lock:
            return self._history.segments(include)

    def close(self) -> None:
        """Answer nothing more. What is sampled from now on belongs to no record."""
        with self._lock:
            self.closed = True

    # What clients do.

    def answer(self, ticket: Ticket, request: Request) -> Reply:
        """Sample a reply, or give that of the same request. Raises ``Refusal``. Then call ``delivered`` or ``gone``."""
        with self._lock:
            self._busy += 1
        try:
            return self._answer(ticket, request)
        finally:
            with self._lock:
                self._asked, self._busy = time.monotonic(), self._busy - 1

    def _answer(self, ticket: Ticket, request: Request) -> Reply:
        with self._lock:
            answer, new = self._answers.join(ticket)
        if new:
            try:
                if ticket.gone:
                    raise Refusal("over", "the client hung up before its call began")
                answer.future.set_result(self._reply(answer, ticket, request))
            except BaseException as error:
                with self._lock:
                    self._answers.failed(ticket, answer)
                answer.future.set_exception(error)
            with self._lock:
                self._answers.settle(answer)
        return answer.future.result()

    def delivered(self, ticket: Ticket) -> None:
        """The client has got all of the answer."""
        with self._lock:
            self._answers.delivered(ticket)

    def gone(self, ticket: Ticket) -> None:
        """The client hung up before it had the answer."""
        with self._lock:
            self._answers.gone(ticket)

    def count(self, request: Request) -> int:
        """How many tokens the prompt of ``request`` has. Raises ``Refusal``."""
        if self._source.untrainable:
            raise Refusal("unknown", f"tokens cannot be counted: {self._source.untrainable}")
        with self._lock:
            request = self._disguised(request)
            place, ids = self._place(request)
        return len(ids) + len(self._render(place, ids, request))

    # One call.

    def _reply(self, answer: Answer, ticket: Ticket, request: Request) -> Reply:
        started = time.time()
        if request.n > MOST_CHOICES:
            raise Refusal("malformed", f"n: at most {MOST_CHOICES} choices, not {request.n}")
        with self._lock:
            request = self._disguised(request)
            place, ids = self._place(request)
            self._admit(request)
            params, ignored = self._params(request)

        def record() -> CallRecord:
            return CallRecord(
                ticket.dialect, ticket.request_id, time.time(), messages=tuple(place.rest), ignored=ignored,
                sampling=params,
            )  # fmt: skip

        try:
            added = self._render(place, ids, request)
            call = Call(place, request.tools, [*ids, *added], len(ids), params)
            choices = tuple(self._choose(answer, record(), call, request) for _ in range(request.n))
        except Exception as error:
            with self._lock:
                self._begun -= request.n - len(answer.nodes)
            raise self._fail(record(), error) from error
        reply = Reply(
            self._name("reply", answer.nodes[0].turn), request, choices,
            tuple(call.prompt) if request.token_ids else (), len(call.prompt), answer.tokens,
            request.model or self.model, int(started),
        )  # fmt: skip
        self._replies[reply.id] = answer.nodes[0]
        return reply

    def _admit(self, request: Request) -> None:
        """Refuse what is over budget."""
        if self.closed:
            raise Refusal("over", "the episode is over")
        if self._max_calls is not None and self._begun + request.n > self._max_calls:
            self.ended = "calls"
        elif self._max_tokens is not None and self.sampled_tokens >= self._max_tokens:
            self.ended = "tokens"
        if self.ended.startswith("engine"):
            raise Refusal("engine", f"the episode failed: {self.ended}")
        if self.ended not in ("", "context"):
            raise Refusal("over", f"the episode is over: its budget of {self.ended} is used up")
        self._begun += request.n

    def _disguised(self, request: Request) -> Request:
        return request if self._disguise is None else self._disguise.request(request)

    def _place(self, request: Request) -> tuple[Place, list[int]]:
        """Where the request belongs, and the ids that are there already."""
        messages = request.messages
        if request.previous:
            node = self._replies.get(request.previous)
            if node is None:
                raise Refusal("unknown", f"no reply {request.previous!r} was given in this session")
            system = [message for message in messages if message["role"] == "system"]
            before = [message for message in node.history() if message["role"] != "system"]
            messages = [*system, *before, *(message for message in messages if message["role"] != "system")]
        try:
            place = self._history.place(normalise(messages), request.tools)
        except RecursionError as error:
            raise Refusal("malformed", "the request is nested too deeply") from error
        if place.rest and place.rest[-1]["role"] == "assistant":
            raise Refusal("malformed", "the last message is the assistant's: a turn cannot be begun for the model")
        return place, place.node.ids() if place.node else []

    def _render(self, place: Place, ids: list[int], request: Request) -> list[int]:
        """The ids that the request adds to ``ids``."""
        try:
            return self._source.render(place, ids, request.tools)
        except ConfigError as error:
            raise Refusal("malformed", str(error)) from error
        except RecursionError as error:
            raise Refusal("malformed", "the request is nested too deeply") from error

    def _params(self, request: Request) -> tuple[SamplingParams, tuple[str, ...]]:
        """How to sample, and what of the request is not followed."""
        ignored = [f"ignored:{option}" for option in request.ignored]
        wanted = {"temperature": request.temperature, "top_p": request.top_p, "seed": request.seed}
        wanted["top_k"] = None if request.top_k is None else max(0, request.top_k)
        given = {name: value for name, value in wanted.items() if value is not None}
        if self.sampling is None:
            base = replace(SamplingParams(max_tokens=DEFAULT_TOKENS), **given)
            if request.max_tokens is not None:
                base = replace(base, max_tokens=request.max_tokens)
        else:
            base = self.sampling
            ignored += [f"overridden:{name}" for name, value in given.items() if value != getattr(base, name)]
        self.counts.update(ignored)
        left = base.max_tokens if self._max_tokens is None else self._max_tokens - self.sampled_tokens
        most = min(base.max_tokens, request.max_tokens or base.max_tokens, left)
        stop = tuple(dict.fromkeys((*base.stop, *request.stop)))
        return replace(base, max_tokens=most, stop=stop), tuple(ignored)

    def _choose(self, answer: Answer, record: CallRecord, call: Call, request: Request) -> Choice:
        """Sample one choice and store it."""
        start = time.perf_counter()
        number = self._number(call, fixed=self.sampling is None and request.seed is not None)
        sampled = self._source.sample(call, self.seed, number)
        sampled = replace(sampled, turn=typed_calls(sampled.turn, request.tools))
        completion = sampled.completion
        record.seconds = time.perf_counter() - start
        record.prompt_tokens, record.sampled_tokens = len(call.prompt), sampled.tokens
        record.finish, record.text = completion.finish_reason, sampled.text
        if completion.finish_reason == "cancelled":
            self.ended = "cancelled"
            raise Refusal("over", "the episode was cancelled")
        turn, finish, stop_text = _shown(sampled, call.params.stop)
        with self._lock:
            record.turn = turn if self._disguise is None else self._disguise.turn(turn)
        pieces = self._source.pieces(completion) if request.logprobs else ()
        names = self._store(answer, record, call, record.turn, completion)
        return Choice(record.turn, names, finish, stop_text, completion.ids, completion.logprobs, pieces)

    def _store(
        self, answer: Answer, record: CallRecord, call: Call, turn: Turn, completion: Completion
    ) -> tuple[str, ...]:
        """Put one sampled turn into the history and the records, before any client can see it; returns its call ids."""
        with self._lock:
            if self.closed:
                raise Refusal("over", "the episode is over")
            names = tuple(self._name("call", len(self.calls), i) for i in range(len(turn.calls)))
            calls = [(f"call_{id}", said.name, said.arguments) for id, said in zip(names, turn.calls, strict=True)]
            reply = assistant(turn.text, turn.reasoning, calls)
            if self._disguise is not None:  # as it will be read when the client sends it back
                reply = self._disguise.message(reply)
            node = self._history.add(call.place, reply, call.prompt[call.known :], completion)
            answer.nodes.append(node)
            answer.tokens += record.sampled_tokens
            self.sampled_tokens += record.sampled_tokens
            self.ended = "" if self.ended == "context" else self.ended
            if turn.malformed:
                self.counts["malformed"] += 1
            record.node, record.cause = node, node.cause
            self.calls.append(record)
        return tuple(id for id, _, _ in calls)

    def _number(self, call: Call, *, fixed: bool) -> int:
        """What seeds a call: its prompt, and how often it was asked before, but not what else goes on at the time."""
        number = self._source.number(call)
        with self._lock:
            self._prompts[number] += 1
            return number if fixed else number + self._prompts[number] - 1

    def _fail(self, record: CallRecord, error: Exception) -> Refusal:
        """The refusal for ``error``, recorded; what the engine or the window refuses also ends the session."""
        if isinstance(error, Refusal):
            refusal = error
        elif isinstance(error, ContextLengthError):
            # Harnesses know this end by these words.
            refusal = Refusal("context", f"this model's maximum context length is exceeded: {error}")
        elif isinstance(error, ConfigError):
            refusal = Refusal("malformed", str(error))
        else:
            what = "" if isinstance(error, ForkGymError) else f"{type(error).__name__}: "
            refusal = Refusal("engine", f"{what}{error}")
        with self._lock:
            if not self.closed:
                record.error = refusal.message
                self.calls.append(record)
                if refusal.kind == "context":
                    self.ended = "context"
                elif refusal.kind == "engine":
                    self.ended = f"engine: {refusal.message}"
                self.counts[f"refused:{refusal.kind}"] += 1
        return refusal

    def _name(self, *what: Any) -> str:
        """A name that is the same in every run of this episode and seed, and unlike any other's."""
        return hashlib.sha256(repr((self.episode, self.seed, *what)).encode()).hexdigest()[:24]

    def describe(self) -> Mapping[str, Any]:
        """What ``GET`` of the session's path shows."""
        with self._lock:
            waiting = self._answers.waiting
        return {
            "calls": len(self.calls), "waiting": waiting, "sampled_tokens": self.sampled_tokens, "ended": self.ended
        }  # fmt: skip


def _shown(sampled: Sampled, stops: tuple[str, ...]) -> tuple[Turn, Finish, str]:
    """What the model said as a client sees it: without the text that stopped it, and why it ended."""
    turn = sampled.turn
    ends = [(turn.text.find(stop), stop) for stop in stops if stop in turn.text]
    if ends and sampled.completion.finish_reason == "stop":
        at, stop = min(ends)
        return replace(turn, text=turn.text[:at]), "stop_text", stop
    if sampled.completion.finish_reason == "length":
        return turn, "length", ""
    return turn, "calls" if turn.calls else "stop", ""
