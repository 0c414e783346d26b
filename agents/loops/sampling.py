"""One sampled turn: a repeatable seed, and a completion that can be trained on or an engine failure."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import replace

from forkgym.agents.base import Completion, Policy, SamplingParams
from forkgym.agents.errors import PolicyError
from forkgym.errors import ForkGymError


def turn_seed(seed: int, turn: int, base: int | None = None) -> int:
    """A seed in [0, 2^63) for one turn of one episode; ``base`` is a run's own ``SamplingParams.seed``."""
    digest = hashlib.sha256(f"{base}/{seed}/{turn}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def sample(
    policy: Policy, ids: Sequence[int], sampling: SamplingParams, *, seed: int, turn: int, stop_ids: Sequence[int]
) -> Completion:
    """The policy's continuation of ``ids``. ``stop_ids`` are added to those of ``sampling``.

    Raises ``ContextLengthError`` if the window is full. Raises ``PolicyError`` for everything else that an engine can
    get wrong, an answer without token ids or with a log-probability that is not finite included: such a turn cannot be
    trained on, and nothing is made up for it.
    """
    stops = tuple(dict.fromkeys((*stop_ids, *sampling.stop_ids)))
    params = replace(sampling, seed=turn_seed(seed, turn, sampling.seed), stop_ids=stops)
    try:
        completions = policy.generate([ids], params)
    except ForkGymError:
        raise
    except Exception as error:
        raise PolicyError(f"the engine raised {type(error).__name__}: {error}") from error
    if len(completions) != 1:
        raise PolicyError(f"the engine gave {len(completions)} completions for one prompt")
    completion = completions[0]
    if completion.finish_reason != "cancelled":
        _check(completion)
    return completion


def _check(completion: Completion) -> None:
    if not completion.ids:
        raise PolicyError("the engine gave no token ids; a policy must return the ids it sampled, never only text")
    wrong = [logprob for logprob in completion.logprobs if not math.isfinite(logprob)]
    if wrong:
        raise PolicyError(f"the engine gave {len(wrong)} log-probabilities that are not finite, such as {wrong[0]}")
