"""Any server that speaks OpenAI's HTTP: a policy where it gives exact ids, else a chat endpoint to evaluate with.

Token ids go to ``/completions`` and must come back with a log-probability each (vLLM does so, asked by
``return_token_ids``). The first call asks for four tokens to see whether they do. Messages go to ``/chat/completions``.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from pydantic import BaseModel, ValidationError

from forkgym.agents.base import ChatReply, Completion, SamplingParams
from forkgym.agents.errors import ContextLengthError, PolicyError
from forkgym.agents.policies.chatting import chat_body, read_reply
from forkgym.agents.policies.checks import check_sampling, prompt_seed
from forkgym.agents.policies.exact import InexactAnswer, completion_body, read_completion
from forkgym.agents.policies.http import JsonClient, StatusError
from forkgym.errors import ConfigError

_UNSUPPORTED = frozenset({400, 404, 405, 415, 422, 501})
_TOO_LONG = re.compile(r"context.{0,3}(length|window)|max_model_len|maximum.{0,30}(length|tokens)", re.IGNORECASE)
_NEEDED = (
    "Training needs a server that takes token ids as the prompt of /completions, and returns token_ids, "
    "prompt_token_ids and logprobs, as vLLM does. Without them use it to evaluate: --agent chat"
)


class _Card(BaseModel):
    id: str
    root: str | None = None
    max_model_len: int | None = None


class _Cards(BaseModel):
    data: list[_Card]


@dataclass(frozen=True)
class Served:
    """What the server says of its model: ``folder`` is its path there, ``context`` its window in tokens, if told."""

    model: str
    folder: str
    context: int | None


class Endpoint:
    """Samples from the server at ``url``: a ``Policy`` and a ``ChatEndpoint``. Nothing is sent before the first call.

    ``model`` is its name there; ``None`` takes the only one served. ``key`` is sent as a bearer token. ``timeout`` in
    seconds is for one request, which is sent up to ``retries`` times more if it fails. ``context`` is the window in
    tokens if the server does not tell. ``version`` says which weights it serves: the server does not.
    """

    def __init__(
        self,
        url: str,
        model: str | None = None,
        *,
        key: str | None = None,
        concurrency: int = 64,
        timeout: float = 600.0,
        retries: int = 5,
        context: int | None = None,
        version: int = 0,
    ) -> None:
        self.version = version
        self.http = JsonClient(url, key, concurrency=concurrency, timeout=timeout, retries=retries)
        self._wanted, self._context = model, context
        self._lock = threading.Lock()
        self._served: Served | None = None
        self._refusal: str | None = None
        self._processed = False
        self._limit_name = "max_tokens"

    def served(self) -> Served:
        """What is served, asked once."""
        with self._lock:
            if self._served is None:
                self._served = self._ask()
            return self._served

    def refusal(self) -> str:
        """Why the server cannot give exact tokens; empty if it can. Asks it for four tokens, once."""
        served = self.served()
        with self._lock:
            if self._refusal is None:
                self._refusal = self._probe(served.model)
            return self._refusal

    def generate(self, prompts: Sequence[Sequence[int]], params: SamplingParams) -> list[Completion]:
        """One completion per prompt; blocks.

        Raises ``ConfigError`` if the server cannot give ids and log-probabilities of the distribution asked for,
        ``ContextLengthError``, and ``PolicyError`` for every answer that is not exactly what was asked for.
        """
        check_sampling(params)
        if refusal := self.refusal():
            raise ConfigError(f"{self.http.url} gives no exact tokens: {refusal}. {_NEEDED}")
        if not self._processed and (params.truncates or params.temperature not in (0.0, 1.0)):
            raise ConfigError(
                f"{self.http.url} gives log-probabilities at temperature 1 whatever is sampled: start it with "
                "--logprobs-mode processed_logprobs, or sample at temperature 1 without top_p and top_k"
            )
        jobs = [partial(self._complete, list(prompt), params, index) for index, prompt in enumerate(prompts)]
        if len(jobs) < 2:
            return [job() for job in jobs]
        with ThreadPoolExecutor(len(jobs), thread_name_prefix="forkgym-endpoint") as pool:
            return [future.result() for future in [pool.submit(job) for job in jobs]]

    def reply(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], params: SamplingParams
    ) -> ChatReply:
        """The server's next turn. Raises ``ConfigError`` for stop ids, which no chat server takes."""
        check_sampling(params)
        model = self._wanted or self.served().model
        try:
            return read_reply(self._chat(chat_body(model, messages, tools, params, self._limit_name)))
        except StatusError as error:
            # Newer models of OpenAI take the limit under another name only.
            if error.status != 400 or "max_completion_tokens" not in error.text:
                raise
            self._limit_name = "max_completion_tokens"
        return read_reply(self._chat(chat_body(model, messages, tools, params, self._limit_name)))

    def close(self) -> None:
        """Close the connections. Idempotent."""
        self.http.close()

    def _ask(self) -> Served:
        here = self.http.url
        try:
            cards = _Cards.model_validate(self.http.call("GET", "/models")).data
        except (StatusError, ValidationError) as error:
            if isinstance(error, StatusError) and error.status not in _UNSUPPORTED:
                raise
            cards = []
        found = [card for card in cards if self._wanted in (None, card.id)]
        if len(found) == 1:
            return Served(found[0].id, found[0].root or "", self._context or found[0].max_model_len)
        if self._wanted is None:
            names = ", ".join(card.id for card in found) or "no models that it names"
            raise ConfigError(f"{here} serves {names}; name one: endpoint:{here}#MODEL")
        return Served(self._wanted, "", self._context)

    def _probe(self, model: str) -> str:
        """Four tokens with one candidate each: their log-probability is 0 in the distribution really sampled from."""
        prompt, params = [1, 2], SamplingParams(max_tokens=4, temperature=2.0, top_k=1)
        try:
            answer = self.http.call("POST", "/completions", completion_body(model, prompt, params, 4, 0))
            completion = read_completion(answer, prompt, params, 4, 0)
        except StatusError as error:
            if error.status not in _UNSUPPORTED:
                raise
            return f"it refuses token ids ({error.text[:200] or error.status})"
        except InexactAnswer as error:
            return str(error)
        self._processed = all(abs(logprob) < 1e-4 for logprob in completion.logprobs)
        return ""

    def _complete(self, prompt: list[int], params: SamplingParams, index: int) -> Completion:
        if not prompt:
            raise PolicyError("an empty prompt cannot be continued")
        version, served, room = self.version, self.served(), params.max_tokens
        if served.context is not None:
            room = min(room, served.context - len(prompt))
        if room < 1:
            raise ContextLengthError(f"prompt of {len(prompt)} tokens; the server's window is {served.context}")
        body = completion_body(served.model, prompt, params, room, prompt_seed(params.seed, index))
        try:
            answer = self.http.call("POST", "/completions", body)
        except StatusError as error:
            raise _as_context(error) from error
        return read_completion(answer, prompt, params, room, version)

    def _chat(self, body: Mapping[str, Any]) -> Any:
        try:
            return self.http.call("POST", "/chat/completions", body)
        except StatusError as error:
            if "max_completion_tokens" in error.text:
                raise
            raise _as_context(error) from error


def _as_context(error: StatusError) -> PolicyError:
    too_long = error.status in (400, 413, 422) and _TOO_LONG.search(error.text)
    return ContextLengthError(str(error)) if too_long else error
