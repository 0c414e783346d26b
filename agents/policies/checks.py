"""What every policy checks before it samples, and where a stop text ends a completion."""

from __future__ import annotations

import math
from collections.abc import Sequence

from forkgym.agents.base import SamplingParams
from forkgym.agents.tokenizers import Tokenizer
from forkgym.errors import ConfigError

_SLACK = 8  # tokens before a stop text, so that what a decoder does at the start of a text cannot touch it


def check_sampling(params: SamplingParams) -> None:
    """Raise ``ConfigError`` for options that mean nothing."""
    wrong = [
        (params.max_tokens < 1, "max_tokens", "at least 1", params.max_tokens),
        (not 0 <= params.temperature < math.inf, "temperature", "a number from 0 on", params.temperature),
        (not 0 < params.top_p <= 1, "top_p", "above 0 and at most 1", params.top_p),
        (params.top_k < 0, "top_k", "at least 0 (0: all tokens)", params.top_k),
        ("" in params.stop, "stop", "texts that are not empty", params.stop),
    ]
    for is_wrong, name, allowed, value in wrong:
        if is_wrong:
            raise ConfigError(f"{name} must be {allowed}, not {value!r}")


def prompt_seed(seed: int | None, index: int) -> int | None:
    """The seed of the prompt with this index in one call, in [0, 2^63): equal prompts must not be drawn alike."""
    return None if seed is None else (seed * 1_000_003 + index) % (1 << 63)


class StopTexts:
    """Finds stop texts in sampled ids, also where a text begins in one token and ends in another.

    Ask after each token: only the end of ``ids`` is looked at. Raises ``ConfigError`` without a tokenizer.
    """

    def __init__(self, texts: Sequence[str], tokenizer: Tokenizer | None) -> None:
        if texts and tokenizer is None:
            raise ConfigError("stop texts are found in decoded tokens: give the policy a tokenizer, or use stop_ids")
        self._texts = tuple(texts)
        self._tokenizer = tokenizer
        self._tail = max((len(text.encode()) for text in texts), default=0) + _SLACK  # a token is a byte or more

    def end(self, ids: Sequence[int]) -> bool:
        """True if the text of ``ids`` holds a stop text; the last token is the one that completed it."""
        if self._tokenizer is None or not self._texts:
            return False
        text = self._tokenizer.decode(ids[-self._tail :])
        return any(stop in text for stop in self._texts)
