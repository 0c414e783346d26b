"""A transformers model as a ``Policy``: continuous batching over episode threads, exact ids and logprobs.

One engine thread owns the weights. Callers block in ``generate``; requests join the running batch between two decode
steps. A stream's keys and values stay in their slot, so the next turn computes only its new tokens; streams that share
a prefix (a group's prompt) compute it once.
"""

from __future__ import annotations

import copy
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from forkgym.agents.base import Completion, FinishReason, SamplingParams
from forkgym.agents.errors import ContextLengthError, PolicyError
from forkgym.agents.policies.checks import StopTexts, check_sampling, prompt_seed
from forkgym.agents.policies.sampler import sample, shape
from forkgym.agents.policies.slots import SlotCache
from forkgym.agents.policies.support import refuse_unsupported
from forkgym.agents.tokenizers import Tokenizer
from forkgym.errors import ConfigError

_HEAD = "lm_head.weight"


@dataclass
class _Request:
    prompt: list[int]
    params: SamplingParams
    future: Future[Completion]
    draw: random.Random
    stops: StopTexts
    slot: int = -1
    version: int = -1
    ids: list[int] = field(default_factory=list[int])
    logprobs: list[float] = field(default_factory=list[float])

    @property
    def stream(self) -> list[int]:
        return self.prompt + self.ids


class HFPolicy:
    """Samples from a private copy of ``model``.

    ``dtype`` is that of the copy (bfloat16 halves memory traffic; logits are always float32). ``slots`` bounds how many
    streams run at once and how many are remembered; ``context`` bounds prompt plus completion, in tokens.
    ``tokenizer`` is needed for stop texts only. ``version`` is the first one, where a resumed run had others before.
    ``busy_seconds`` counts the wall time in which the model computed. Raises ``ConfigError`` for a model that would not
    be computed exactly.
    """

    def __init__(
        self,
        model: Any,
        *,
        dtype: torch.dtype = torch.bfloat16,
        slots: int = 32,
        context: int = 1024,
        device: str = "cpu",
        tokenizer: Tokenizer | None = None,
        version: int = 0,
    ) -> None:
        config, output = model.config, model.get_output_embeddings()
        self.context = min(context, int(config.max_position_embeddings))
        refuse_unsupported(model, self.context)
        if output.bias is not None:
            raise ConfigError(f"{type(model).__name__} has a bias on its output head, which is not sampled with")
        self._model = _copy_of(model, dtype, device)
        self._head: Tensor = output.weight.detach().to(device, torch.float32, copy=True)
        heads = int(getattr(config, "num_key_value_heads", None) or config.num_attention_heads)
        dim = int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)
        like = next(self._model.parameters())
        self._cache = SlotCache(int(config.num_hidden_layers), slots, heads, dim, self.context, like)
        self._held: list[list[int]] = [[] for _ in range(slots)]
        self._free = list(range(slots))
        self._waiting: list[_Request] = []
        self._joining: list[_Request] = []
        self._running: list[_Request] = []
        self._wake = threading.Condition()
        self._weights = threading.Lock()
        self._version = version
        self._tokenizer = tokenizer
        self._closed = False
        self._broken: BaseException | None = None
        self.tokens_sampled = 0
        self.tokens_prefilled = 0
        self.busy_seconds = 0.0
        self._thread = threading.Thread(target=self._serve, name="forkgym-hf-policy", daemon=True)
        self._thread.start()

    @property
    def version(self) -> int:
        """Counts calls of ``update``, from the first version on."""
        return self._version

    def update(self, weights: Mapping[str, Tensor]) -> int:
        """Copy new weights (a ``state_dict``, or part of one) between two decode steps; returns the new version.

        Nothing computed with the old ones is used again: streams under way compute theirs anew. Raises ``PolicyError``
        before any change if a name or a shape is wrong.
        """
        own = self._model.state_dict()
        unknown = sorted(set(weights) - set(own))
        if unknown:
            raise PolicyError(f"no such weights in the model: {', '.join(unknown[:3])}")
        for name, value in weights.items():
            if value.shape != own[name].shape:
                raise PolicyError(f"weight {name!r} has shape {tuple(value.shape)}, not {tuple(own[name].shape)}")
        tied = {_HEAD} | {name for name, value in own.items() if value.data_ptr() == own[_HEAD].data_ptr()}
        with self._weights, torch.inference_mode():
            for name, value in weights.items():
                own[name].copy_(value)
                if name in tied:
                    self._head.copy_(value)
            self._version += 1
            self._held = [[] for _ in self._held]
        return self._version

    def generate(self, prompts: Sequence[Sequence[int]], params: SamplingParams) -> list[Completion]:
        """One completion per prompt; blocks. Raises ``ContextLengthError``, ``PolicyError``, or ``ConfigError``.

        Greedy log-probabilities are those of the model at temperature 1, uncut. If ``update`` came in between, each
        log-probability is that of the weights which sampled the token, and the completion has the version of the
        oldest.
        """
        check_sampling(params)
        requests = [self._request(prompt, params, index) for index, prompt in enumerate(prompts)]
        with self._wake:
            if self._closed or self._broken:
                raise PolicyError(f"the policy is closed{f': {self._broken}' if self._broken else ''}")
            self._waiting += requests
            self._wake.notify()
        return [request.future.result() for request in requests]

    def close(self) -> None:
        """Stop the engine thread; waiting callers get ``PolicyError``. Idempotent."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._thread.join()

    def __enter__(self) -> HFPolicy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _request(self, prompt: Sequence[int], params: SamplingParams, index: int) -> _Request:
        if not prompt:
            raise PolicyError("an empty prompt cannot be continued")
        if len(prompt) >= self.context:
            raise ContextLengthError(f"prompt of {len(prompt)} tokens leaves no room in a window of {self.context}")
        if not 0 <= min(prompt) <= max(prompt) < self._head.shape[0]:
            raise PolicyError(f"token ids must lie in [0, {self._head.shape[0]}); got {min(prompt)} to {max(prompt)}")
        draw = random.Random(prompt_seed(params.seed, index))
        return _Request(list(prompt), params, Future(), draw, StopTexts(params.stop, self._tokenizer))

    def _serve(self) -> None:
        try:
            while self._admit():
                self._compute(self._step)
        except BaseException as error:  # every caller must hear of it; none may hang
            self._broken = error
        with self._wake:
            for request in self._joining + self._running + self._waiting:
                if not request.future.done():
                    request.future.set_exception(PolicyError(f"engine stopped: {self._broken or 'closed'}"))
            self._joining, self._running, self._waiting = [], [], []

    def _admit(self) -> bool:
        """Wait for work, then move requests into free slots; False once closed."""
        with self._wake:
            while not (self._waiting or self._running or self._closed):
                self._wake.wait()
            if self._closed:
                return False
            room = len(self._free)
            self._joining, self._waiting = self._waiting[:room], self._waiting[room:]
        if self._joining:
            self._compute(lambda: self._prefill(self._joining))
            self._joining = []
        return True

    def _compute(self, work: Callable[[], None]) -> None:
        with self._weights, torch.inference_mode():
            start = time.perf_counter()
            work()
            self.busy_seconds += time.perf_counter() - start

    def _prefill(self, fresh: list[_Request]) -> None:
        """Give each request a slot, reuse what a slot already holds, compute the rest in one pass, sample a token.

        Requests that share more with each other than with any slot go in two rounds: the shared part is computed once.
        """
        later: list[_Request] = []
        batch: list[tuple[_Request, int]] = []
        for request in fresh:
            source, known = self._best(request.prompt)
            peer = max((_common(request.prompt, other.prompt) for other, _ in batch), default=0)
            if min(peer, len(request.prompt) - 1) >= known + 16:
                later.append(request)
                continue
            batch.append((request, self._take(request, source, known)))
        self._forward([r for r, _ in batch], [r.prompt[known:] for r, known in batch], [known for _, known in batch])
        self.tokens_prefilled += sum(len(r.prompt) - known for r, known in batch)
        if later:
            self._prefill(later)

    def _best(self, prompt: list[int]) -> tuple[int, int]:
        """The slot with the longest common prefix; the last prompt token is always computed, for its logits."""
        shared = [min(_common(prompt, held), len(prompt) - 1) for held in self._held]
        best = max(range(len(shared)), key=shared.__getitem__)
        return best, shared[best]

    def _take(self, request: _Request, source: int, known: int) -> int:
        """Assign a slot: the source itself if it is free and loses nothing, else a copy in the least useful one."""
        if source in self._free and known >= len(self._held[source]) - 1:
            slot = source
        else:
            slot = min(self._free, key=lambda s: len(self._held[s]) if s != source or not known else 1 << 30)
            if known and slot != source:
                self._cache.copy(source, slot, known)
        self._free.remove(slot)
        request.slot, request.version = slot, self._version
        self._held[slot] = request.prompt[:known]
        return known

    def _step(self) -> None:
        """One decode step for every running request: its last token, or after ``update`` its whole stream."""
        if self._running:
            batch = sorted(self._running, key=lambda r: r.slot)
            span = batch[-1].slot + 1
            starts = [len(self._held[r.slot]) for r in batch]
            new = [r.stream[start:] for r, start in zip(batch, starts, strict=True)]
            self._forward(batch, new, starts, span if span <= 2 * len(batch) else None)

    def _forward(self, batch: list[_Request], new: list[list[int]], starts: list[int], span: int | None = None) -> None:
        """Run the new tokens of each request at its own positions and sample one token each.

        With ``span``, slots [0, span) are computed as they lie in memory, idle ones for nothing: gathering the keys and
        values of scattered rows would cost more. What idle rows and padding write goes to the last position or beyond a
        row's length; no token is ever fed at the one, and the other is overwritten before it is read.
        """
        slots = [r.slot for r in batch]
        rows = torch.tensor(range(len(batch)) if span is None else slots)
        width = max(map(len, new))
        ids = torch.zeros(span or len(batch), width, dtype=torch.long)
        ids[rows] = torch.tensor([row + [0] * (width - len(row)) for row in new])
        positions = torch.full_like(ids, self._cache.capacity - 1)
        positions[rows] = (torch.tensor(starts)[:, None] + torch.arange(width)).clamp(max=self._cache.capacity - 1)
        length = min(max(starts) + width, self._cache.capacity)
        mask = (torch.arange(length)[None, None, :] <= positions[:, :, None])[:, None]
        self._cache.select(slots if span is None else list(range(span)), positions, length)
        hidden = self._model.model(
            input_ids=ids, attention_mask=mask, position_ids=positions, cache=self._cache, use_cache=True
        ).last_hidden_state
        last = torch.tensor([len(row) - 1 for row in new])
        logits = torch.nn.functional.linear(hidden[rows, last].float(), self._head)
        for request, row in zip(batch, new, strict=True):
            self._held[request.slot] += row
        self._sample(batch, logits)

    def _sample(self, batch: list[_Request], logits: Tensor) -> None:
        """Draw one token per row; a row's draw does not depend on its neighbours."""
        shape(logits, [r.params for r in batch])
        points = [None if r.params.temperature == 0 else r.draw.random() for r in batch]
        ids, picked = sample(logits, points)
        self.tokens_sampled += len(batch)
        stepped = {id(r) for r in batch}
        running = [r for r in self._running if id(r) not in stepped]
        for request, token, logprob in zip(batch, ids, picked, strict=True):
            request.ids.append(token)
            request.logprobs.append(logprob)
            reason = self._finish_reason(request, token)
            if reason is None:
                running.append(request)
            else:
                self._release(request, reason)
        self._running = running

    def _finish_reason(self, request: _Request, token: int) -> FinishReason | None:
        if token in request.params.stop_ids or request.stops.end(request.ids):
            return "stop"
        full = len(request.stream) >= self.context
        return "length" if full or len(request.ids) >= request.params.max_tokens else None

    def _release(self, request: _Request, reason: FinishReason) -> None:
        self._free.append(request.slot)
        request.future.set_result(Completion(tuple(request.ids), tuple(request.logprobs), reason, request.version))


def _common(a: list[int], b: list[int]) -> int:
    """Length of the common prefix."""
    n = min(len(a), len(b))
    if a[:n] == b[:n]:
        return n
    low, high = 0, n
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if a[:middle] == b[:middle] else (low, middle - 1)
    return low


def _copy_of(model: Any, dtype: torch.dtype, device: str) -> Any:
    """An inference copy. Only parameters change their type: rotary frequencies must stay float32."""
    own = copy.deepcopy(model).to(device)
    for parameter in own.parameters():
        parameter.data = parameter.data.to(dtype)
    return own.eval().requires_grad_(False)
