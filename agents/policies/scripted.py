"""A language model that says what it is told: the public double for tests, demonstrations and dry runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from forkgym.agents.base import Completion, SamplingParams
from forkgym.agents.errors import ContextLengthError, PolicyError
from forkgym.agents.policies.checks import StopTexts, check_sampling
from forkgym.agents.tokenizers import ByteTokenizer, Tokenizer


@dataclass(frozen=True)
class Call:
    """One prompt that reached the policy. ``turn`` counts the completions this prompt already contains."""

    ids: tuple[int, ...]
    text: str
    turn: int
    params: SamplingParams


Line = str | Completion | BaseException
Script = Sequence[Line] | Callable[[Call], Line]


class ScriptedPolicy:
    """Answers from ``script``: one entry per turn, or a function of the call.

    A text is encoded and closed with the first stop id of the call, or cut after a stop text; a ``Completion`` is
    returned as it is, and an exception is raised. The turn is found from the prompt itself (which earlier prompt +
    completion it starts with), so one policy serves many episodes at once, in any order. ``window`` is the context
    length in tokens, ``None`` for no limit. ``logprob`` gives the log-probability of the i-th token of a completion.
    """

    def __init__(
        self,
        script: Script,
        tokenizer: Tokenizer | None = None,
        *,
        window: int | None = None,
        version: int = 0,
        logprob: Callable[[int], float] = lambda i: -(i + 1) / 128,
    ) -> None:
        self.tokenizer: Tokenizer = tokenizer or ByteTokenizer()
        self.version = version
        self.window = window
        self.closed = False
        self.calls: list[Call] = []
        self._script = script
        self._logprob = logprob
        self._turns: dict[tuple[int, ...], int] = {}
        self._lock = threading.Lock()

    def generate(self, prompts: Sequence[Sequence[int]], params: SamplingParams) -> list[Completion]:
        """One completion per prompt; see the class for what it holds."""
        check_sampling(params)
        with self._lock:
            calls = [self._record(tuple(prompt), params) for prompt in prompts]
        return [self._answer(call) for call in calls]

    def close(self) -> None:
        self.closed = True

    def _record(self, ids: tuple[int, ...], params: SamplingParams) -> Call:
        lengths = sorted({len(stream) for stream in self._turns}, reverse=True)
        turn = next((self._turns[ids[:n]] for n in lengths if ids[:n] in self._turns), 0)
        call = Call(ids, self.tokenizer.decode(ids), turn, params)
        self.calls.append(call)
        return call

    def _answer(self, call: Call) -> Completion:
        room = call.params.max_tokens
        if self.window is not None:
            room = min(room, self.window - len(call.ids))
        if room < 1:
            raise ContextLengthError(f"the prompt has {len(call.ids)} tokens; the window holds {self.window}")
        line = self._line(call)
        if isinstance(line, BaseException):
            raise line
        completion = line if isinstance(line, Completion) else self._say(line, call.params, room)
        with self._lock:
            self._turns[call.ids + completion.ids] = call.turn + 1
        return completion

    def _line(self, call: Call) -> Any:
        if callable(self._script):
            return self._script(call)
        if call.turn >= len(self._script):
            raise PolicyError(f"the script has {len(self._script)} turns, and turn {call.turn + 1} was asked for")
        return self._script[call.turn]

    def _say(self, text: str, params: SamplingParams, room: int) -> Completion:
        whole = [*self.tokenizer.encode(text), *params.stop_ids[:1]]
        stops = StopTexts(params.stop, self.tokenizer)
        told = next((n for n in range(1, len(whole) + 1) if stops.end(whole[:n])), 0) if params.stop else 0
        whole = whole[: told or None]
        ids = tuple(whole[:room])
        stopped = (bool(params.stop_ids) or told > 0) and len(ids) == len(whole)
        return Completion(
            ids, tuple(self._logprob(i) for i in range(len(ids))), "stop" if stopped else "length", self.version
        )
