"""The ``/completions`` of a server that gives exact tokens: what is asked for, and what its answer must hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, ValidationError

from forkgym.agents.base import Completion, SamplingParams
from forkgym.agents.errors import PolicyError

_CLAMPED = -9998.0  # vLLM writes -9999 for minus infinity


class InexactAnswer(PolicyError):
    """An answer that cannot be trained on."""


class _Part(BaseModel):
    model_config = ConfigDict(strict=True)


class _Scores(_Part):
    token_logprobs: list[Annotated[float, Field(gt=_CLAMPED, le=1e-3, allow_inf_nan=False)]]


class _Choice(_Part):
    prompt_token_ids: list[int]
    token_ids: Annotated[list[NonNegativeInt], Field(min_length=1)]
    logprobs: _Scores
    finish_reason: Literal["stop", "length"]


class _Answer(_Part):
    choices: Annotated[list[_Choice], Field(min_length=1, max_length=1)]


def completion_body(
    model: str, prompt: list[int], params: SamplingParams, room: int, seed: int | None
) -> dict[str, Any]:
    """The request for one completion of at most ``room`` tokens.

    Whatever shapes the distribution is said, so that no default of the server does. The end tokens that the server
    knows do not end it: only those asked for do.
    """
    return {
        "model": model,
        "prompt": prompt,
        "max_tokens": room,
        "temperature": params.temperature,
        "top_p": params.top_p,
        "top_k": params.top_k,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "seed": seed,
        "stop": list(params.stop),
        "stop_token_ids": list(params.stop_ids),
        "ignore_eos": True,
        "skip_special_tokens": False,
        "logprobs": 1,
        "return_token_ids": True,
    }


def read_completion(answer: Any, prompt: list[int], params: SamplingParams, room: int, version: int) -> Completion:
    """The completion in an answer. Raises ``InexactAnswer`` unless all that was asked for is there, and fits."""
    try:
        choice = _Answer.model_validate(answer).choices[0]
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the whole"
        raise InexactAnswer(f"the server's answer is not exact: {where}: {first['msg']}") from error
    ids, scores, finish = choice.token_ids, choice.logprobs.token_logprobs, choice.finish_reason
    if len(ids) != len(scores):
        raise InexactAnswer(f"the server's answer has {len(ids)} token ids but {len(scores)} log-probabilities")
    if choice.prompt_token_ids != prompt:
        raise InexactAnswer("the server's answer is to a prompt of other ids than those sent")
    check_end(ids, finish, params, room)
    return Completion(tuple(ids), tuple(scores), finish, version)


def check_end(ids: Sequence[int], finish: str | None, params: SamplingParams, room: int) -> None:
    """Raise ``InexactAnswer`` unless ``ids`` ended as they were asked to, after at most ``room`` tokens."""
    if finish not in ("stop", "length") or len(ids) > room or (finish == "length" and len(ids) < room):
        raise InexactAnswer(f"the server ended with {finish!r} after {len(ids)} of at most {room} tokens")
    stopped = ids[-1] in params.stop_ids or bool(params.stop)
    if any(i in params.stop_ids for i in ids[:-1]) or (finish == "stop" and not stopped):
        raise InexactAnswer("the server does not end at the stop ids asked for, or leaves the stop token out")
