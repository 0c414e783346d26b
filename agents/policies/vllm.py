"""vLLM in this process as a ``Policy``: its continuous batching and prefix cache, ids in and ids out.

One thread owns the engine. Callers block in ``generate``; requests join between two steps of the engine. New weights
wait until what is under way has ended, so that every completion has one version, and the prefix cache is emptied.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from torch import Tensor

from forkgym.agents.base import Completion, SamplingParams
from forkgym.agents.errors import ContextLengthError, PolicyError
from forkgym.agents.policies.checks import check_sampling, prompt_seed
from forkgym.agents.policies.exact import InexactAnswer, check_end
from forkgym.agents.policies.vllm_worker import EXTENSION
from forkgym.agents.policies.weights import FolderWeights
from forkgym.errors import MissingExtraError

# The engine runs in our thread, reports to nobody and asks no hub. Read by vLLM when it is imported.
_SETTINGS = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
}


@dataclass(frozen=True)
class _Request:
    prompt: list[int]
    params: SamplingParams
    room: int
    seed: int | None
    future: Future[Completion]


class VLLMPolicy:
    """Samples by vLLM from the model in ``folder``.

    ``slots`` bounds how many streams run at once, ``context`` prompt plus completion in tokens. ``eager`` leaves out
    compilation: a quicker start, slower tokens. ``version`` is the first one. ``engine`` has more arguments of
    ``vllm.LLM``. ``busy_seconds`` counts the wall time in which the engine computed. Raises ``MissingExtraError``
    without vLLM, ``PolicyError`` if it cannot start.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        dtype: str = "auto",
        slots: int = 32,
        context: int = 2048,
        eager: bool = False,
        version: int = 0,
        engine: Mapping[str, Any] | None = None,
    ) -> None:
        self.context = context
        self._weights = FolderWeights(Path(folder))
        self._changed: dict[str, Tensor] = {}
        self._version = version
        self._wake = threading.Condition()
        self._waiting: list[_Request] = []
        self._running: dict[str, _Request] = {}
        self._update: tuple[Mapping[str, Tensor], Future[int]] | None = None
        self._closed = False
        self._broken: BaseException | None = None
        self._count = 0
        self.tokens_sampled = 0
        self.busy_seconds = 0.0
        options = {
            "model": str(folder),
            "dtype": dtype,
            "max_num_seqs": slots,
            "max_model_len": context,
            "enforce_eager": eager,
            "logprobs_mode": "processed_logprobs",
            "worker_extension_cls": EXTENSION,
            "generation_config": "vllm",  # not the model's own sampling defaults
            **(engine or {}),
        }
        started: Future[None] = Future()
        self._thread = threading.Thread(target=self._serve, args=(options, started), name="forkgym-vllm", daemon=True)
        self._thread.start()
        started.result()

    @property
    def version(self) -> int:
        """Counts calls of ``update``, from the first version on."""
        return self._version

    def generate(self, prompts: Sequence[Sequence[int]], params: SamplingParams) -> list[Completion]:
        """One completion per prompt; blocks. Raises ``ContextLengthError``, ``PolicyError``, or ``ConfigError``."""
        check_sampling(params)
        requests = [self._request(list(prompt), params, index) for index, prompt in enumerate(prompts)]
        with self._wake:
            self._refuse_if_closed()
            self._waiting += requests
            self._wake.notify()
        return [request.future.result() for request in requests]

    def update(self, weights: Mapping[str, Tensor]) -> int:
        """Sample with new weights (a ``state_dict``, or part of one), once what is under way has ended.

        Returns the new version. Raises ``PolicyError`` before any change if a name or a shape is wrong.
        """
        own, done = self._weights.check(weights), Future[int]()
        with self._wake:
            self._refuse_if_closed()
            if self._update is not None:
                raise PolicyError("an update is under way already")
            self._update = own, done
            self._wake.notify()
        return done.result()

    def close(self) -> None:
        """Stop the engine; waiting callers get ``PolicyError``. Idempotent."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._thread.join()

    def __enter__(self) -> VLLMPolicy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _refuse_if_closed(self) -> None:
        if self._closed or self._broken:
            raise PolicyError(f"the policy is closed{f': {self._broken}' if self._broken else ''}")

    def _request(self, prompt: list[int], params: SamplingParams, index: int) -> _Request:
        if not prompt:
            raise PolicyError("an empty prompt cannot be continued")
        room = min(params.max_tokens, self.context - len(prompt))
        if room < 1:
            raise ContextLengthError(f"prompt of {len(prompt)} tokens leaves no room in a window of {self.context}")
        return _Request(prompt, params, room, prompt_seed(params.seed, index), Future())

    def _serve(self, options: Mapping[str, Any], started: Future[None]) -> None:
        try:
            vllm = _import()
            llm = vllm.LLM(**options)
        except BaseException as error:
            known = isinstance(error, MissingExtraError)
            self._broken = error if known else PolicyError(f"vLLM did not start: {type(error).__name__}: {error}")
            started.set_exception(self._broken)
            return
        started.set_result(None)
        try:
            while self._await_work():
                start = time.perf_counter()
                self._advance(vllm, llm)
                self.busy_seconds += time.perf_counter() - start
        except BaseException as error:  # every caller must hear of it; none may hang
            self._broken = error
        with self._wake:
            ended = PolicyError(f"engine stopped: {self._broken or 'closed'}")
            futures: list[Future[Any]] = [r.future for r in (*self._waiting, *self._running.values())]
            futures += [self._update[1]] if self._update else []
            for future in futures:
                if not future.done():
                    future.set_exception(ended)
            self._waiting, self._running, self._update = [], {}, None
        llm.llm_engine.engine_core.shutdown()

    def _await_work(self) -> bool:
        with self._wake:
            while not (self._waiting or self._running or self._update or self._closed):
                self._wake.wait()
            return not self._closed

    def _advance(self, vllm: Any, llm: Any) -> None:
        """Take up new requests, unless new weights wait; then one step of the engine, or the new weights."""
        with self._wake:
            fresh: list[_Request] = []
            if self._update is None:
                fresh, self._waiting = self._waiting, []
        for request in fresh:
            self._count += 1
            try:
                llm.llm_engine.add_request(
                    str(self._count), {"prompt_token_ids": request.prompt}, _sampling(vllm, request)
                )
            except Exception as error:  # what vLLM refuses of one request, such as an id out of its vocabulary
                request.future.set_exception(PolicyError(f"vLLM refuses the request: {error}"))
                continue
            self._running[str(self._count)] = request
        if self._running:
            for output in llm.llm_engine.step():
                if output.finished:
                    self._finish(self._running.pop(output.request_id), output.outputs[0])
        elif self._update is not None:
            self._load(llm)

    def _finish(self, request: _Request, output: Any) -> None:
        ids = tuple(map(int, output.token_ids))
        self.tokens_sampled += len(ids)
        try:
            check_end(ids, output.finish_reason, request.params, request.room)
            logprobs = tuple(float(step[i].logprob) for step, i in zip(output.logprobs, ids, strict=True))
            completion = Completion(ids, logprobs, output.finish_reason, self._version)
        except (InexactAnswer, LookupError, TypeError, ValueError) as error:
            request.future.set_exception(PolicyError(f"vLLM's completion cannot be used: {error}"))
            return
        request.future.set_result(completion)

    def _load(self, llm: Any) -> None:
        assert self._update is not None
        weights, done = self._update
        self._changed |= {name: value.detach().to("cpu", copy=True) for name, value in weights.items()}
        llm.collective_rpc("take_weights", kwargs={"weights": self._weights.whole(self._changed)})
        if not llm.reset_prefix_cache():
            raise PolicyError("vLLM did not empty its prefix cache")
        self._version += 1
        self._update = None
        done.set_result(self._version)


def _import() -> Any:
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        return import_module("vllm")
    except ModuleNotFoundError as error:
        raise MissingExtraError(f"policy vllm needs the package {error.name!r}: pip install 'forkgym[vllm]'") from error


def _sampling(vllm: Any, request: _Request) -> Any:
    params = request.params
    return vllm.SamplingParams(
        max_tokens=request.room,
        temperature=params.temperature,
        top_p=params.top_p,
        top_k=params.top_k,
        seed=request.seed,
        stop=list(params.stop),
        stop_token_ids=list(params.stop_ids),
        ignore_eos=True,
        logprobs=0,
        detokenize=bool(params.stop),
        skip_special_tokens=False,
        output_kind=vllm.sampling_params.RequestOutputKind.FINAL_ONLY,
    )
