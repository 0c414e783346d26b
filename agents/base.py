"""Who acts, and the record of what it did.

Token ids are the truth: a ``Segment`` holds exactly the ids the model read and sampled; nothing is ever decoded and
encoded again. ``Policy.generate`` is called from many episode threads at once and batches them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from forkgym.envs.core import CodingEnv

FinishReason = Literal["stop", "length", "cancelled"]
Status = Literal["finished", "truncated", "cancelled", "failed"]


@dataclass(frozen=True)
class SamplingParams:
    """How to sample. ``temperature`` 0 is greedy. ``seed`` makes one call repeatable, whatever else is in the batch.

    ``top_k`` (0: all) and ``top_p`` (1: all) cut the tempered distribution to its likeliest tokens, in this order.
    Log-probabilities are those of the distribution really sampled from. ``stop_ids`` and ``stop`` (texts) end a
    completion; what ended it is part of its ids. A policy refuses with ``ConfigError`` what it cannot do.
    """

    max_tokens: int = 256
    temperature: float = 1.0
    seed: int | None = None
    stop_ids: tuple[int, ...] = ()
    top_p: float = 1.0
    top_k: int = 0
    stop: tuple[str, ...] = ()

    @property
    def truncates(self) -> bool:
        """True if tokens are cut off, so that the model's own probabilities are not those sampled from."""
        return self.top_p < 1.0 or self.top_k > 0

    @property
    def shaping(self) -> dict[str, float]:
        """What shapes the distribution, as ``Episode.sampling`` records it."""
        return {"temperature": self.temperature, "top_p": self.top_p, "top_k": float(self.top_k)}


@dataclass(frozen=True)
class Completion:
    """Sampled ids with the log-probability of each (natural log), and the policy version that sampled them.

    A sampled stop token is part of ``ids``. ``finish_reason`` is ``stop`` only if the model emitted a stop token or
    completed a stop text.
    """

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: FinishReason
    version: int = 0

    def __post_init__(self) -> None:
        if len(self.ids) != len(self.logprobs):
            raise ValueError(f"{len(self.ids)} ids but {len(self.logprobs)} logprobs")


class Policy(Protocol):
    """A language model that continues token ids. Safe to call from many threads."""

    @property
    def version(self) -> int:
        """Counts weight updates; stamped on every completion."""
        ...

    def generate(self, prompts: Sequence[Sequence[int]], params: SamplingParams) -> list[Completion]:
        """One completion per prompt. Raises ``ContextLengthError`` or ``PolicyError``."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Call:
    """One tool call of a turn. ``arguments`` is the JSON text of an object, or what the model wrote in its place.

    ``untyped``: the model's syntax has no types, so every value is a text, to be read as the tool's schema says.
    """

    name: str
    arguments: str
    untyped: bool = False


@dataclass(frozen=True)
class Turn:
    """What one sampled turn says: ``reasoning`` (without its tags), ``text`` and ``calls`` in their order.

    ``malformed`` says what is wrong with a call that could not be read; its text then stays in ``text``.
    """

    text: str
    reasoning: str = ""
    calls: tuple[Call, ...] = ()
    malformed: str = ""


@dataclass(frozen=True)
class ChatReply:
    """One turn of a server that gives text and no token ids.

    ``message`` is the turn as it goes back into the messages of the next call, with the ids of its tool calls in
    ``tool_calls``. ``tokens`` is how many the server counts for it, 0 if it does not say.
    """

    turn: Turn
    message: Mapping[str, Any]
    finish_reason: FinishReason
    tokens: int = 0


class ChatEndpoint(Protocol):
    """A server that answers messages with text: fit to evaluate, not to train. Safe to call from many threads."""

    def reply(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], params: SamplingParams
    ) -> ChatReply:
        """The next turn. Raises ``ContextLengthError``, ``PolicyError``, or ``ConfigError`` for what it cannot do."""
        ...


class ChatFormat(Protocol):
    """Text to ids for one model family, incrementally: what was sampled is never rendered again.

    A message is a mapping as of OpenAI's chat completions: ``role``, ``content`` (text), and for the assistant also
    ``reasoning_content`` and ``tool_calls``; a ``tool`` message has ``tool_call_id``. A tool is one of its function
    definitions, as ``CodingEnv.tools`` gives them. No text becomes a special token, whatever it spells.
    """

    name: str
    stop_ids: tuple[int, ...]

    def start(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = ()) -> list[int]:
        """Ids of the opening messages and tools plus the header that asks for an assistant turn."""
        ...

    def extend(self, ids: Sequence[int], messages: Sequence[Mapping[str, Any]]) -> list[int]:
        """``ids`` (ending in a sampled turn) closed if need be, then the new messages and the next header.

        The result always starts with ``ids``, token for token.
        """
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """The text of one sampled turn, without its stop token."""
        ...

    def parse(self, ids: Sequence[int]) -> Turn:
        """What one sampled turn says. Never raises for what a model may write."""
        ...


@dataclass
class Segment:
    """One token stream. All lists have equal length.

    ``sampled[i]`` is True where the model emitted the token; there ``logprobs[i]`` and ``version[i]`` are set,
    elsewhere they are 0.0 and -1. ``turn[i]`` is the 0-based turn a token belongs to: an observation belongs to the
    turn it answers.
    """

    ids: list[int] = field(default_factory=list[int])
    sampled: list[bool] = field(default_factory=list[bool])
    logprobs: list[float] = field(default_factory=list[float])
    version: list[int] = field(default_factory=list[int])
    turn: list[int] = field(default_factory=list[int])

    def append_prompt(self, ids: Sequence[int], turn: int) -> None:
        """Add tokens the model did not emit."""
        n = len(ids)
        self.ids += ids
        self.sampled += [False] * n
        self.logprobs += [0.0] * n
        self.version += [-1] * n
        self.turn += [turn] * n

    def append_completion(self, completion: Completion, turn: int) -> None:
        """Add the tokens of one completion."""
        n = len(completion.ids)
        self.ids += completion.ids
        self.sampled += [True] * n
        self.logprobs += completion.logprobs
        self.version += [completion.version] * n
        self.turn += [turn] * n


@dataclass
class Step:
    """One environment step as text, for people and viewers; training uses ``Segment``.

    ``tree`` is the digest of the changed files after the step, where the environment took it.
    """

    turn: int
    text: str
    action: Mapping[str, Any]
    observation: str
    reward: float
    seconds: float
    policy_seconds: float = 0.0
    tree: str = ""


@dataclass
class Episode:
    """The record of one attempt.

    ``status`` and ``reason`` are typed: ``finished`` (submitted or solved), ``truncated`` (turns, tokens, time,
    context), ``cancelled``, ``failed`` (sandbox, engine, grader, harness). ``reward`` is ``None`` unless the episode
    was scored; a failed or cancelled episode is never scored. ``group`` names the GRPO group it belongs to;
    ``parent`` is (episode id, step) for an episode that began as a fork. ``detail`` says in words what went wrong.
    ``sampling`` holds the options that shaped the distribution sampled from: ``temperature``, ``top_p``, ``top_k``; it
    is empty where nothing was sampled. ``submission`` is what was graded, as ``forkgym.tasks.submission`` writes it,
    unless it is too large to be kept; ``tree`` is its digest. ``ending`` is the end (status, reason) that a failed
    episode had come to before it was to be graded. ``permanent`` marks a failure that another try would meet again.
    ``privileged`` is what ``CodingEnv.privileged`` said before each turn, for critics only, or empty.
    """

    id: str
    task: str
    group: str
    harness: str
    seed: int
    status: Status = "cancelled"
    reason: str = ""
    prompt: list[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])
    steps: list[Step] = field(default_factory=list[Step])
    segments: list[Segment] = field(default_factory=list[Segment])
    verdict: Mapping[str, Any] | None = None
    reward: float | None = None
    parent: tuple[str, int] | None = None
    metrics: dict[str, float] = field(default_factory=dict[str, float])
    detail: str = ""
    sampling: Mapping[str, float] = field(default_factory=dict[str, float])
    submission: str | None = None
    tree: str = ""
    ending: tuple[Status, str] | None = None
    permanent: bool = False
    privileged: list[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])

    @property
    def scored(self) -> bool:
        """True if the reward may be trained on and averaged."""
        return self.reward is not None


class Agent(Protocol):
    """Plays one episode in an environment that is not yet reset."""

    name: str

    def run(
        self,
        env: CodingEnv,
        policy: Policy | None,
        *,
        task: str,
        seed: int,
        sampling: SamplingParams,
        episode: str,
        group: str,
    ) -> Episode:
        """Reset ``env`` to ``task`` and act until the end. Failures are recorded in the episode, not raised."""
        ...
