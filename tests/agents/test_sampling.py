from __future__ import annotations

import math

import pytest

from forkgym.agents.base import Completion, SamplingParams
from forkgym.agents.errors import ContextLengthError, PolicyError
from forkgym.agents.loops.sampling import sample, turn_seed
from forkgym.agents.policies.scripted import ScriptedPolicy


def test_seeds_differ_by_run_episode_and_turn_and_never_change() -> None:
    seeds = [turn_seed(seed, turn, base) for seed in range(20) for turn in range(20) for base in (None, 0, 1)]
    assert len(set(seeds)) == 1200
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert turn_seed(7, 0) == turn_seed(7, 0) != turn_seed(70, 0)


def test_call_carries_the_seed_and_all_stop_ids() -> None:
    policy = ScriptedPolicy(["a"])
    params = SamplingParams(max_tokens=5, temperature=0.5, seed=3, stop_ids=(9, 257))
    sample(policy, [1], params, seed=7, turn=2, stop_ids=(257,))
    seen = policy.calls[0].params
    assert seen == SamplingParams(5, 0.5, turn_seed(7, 2, 3), (257, 9))


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        (Completion((), (), "stop"), PolicyError, "no token ids"),
        (Completion((1,), (math.nan,), "stop"), PolicyError, "not finite, such as nan"),
        (Completion((1, 2), (-1.0, -math.inf), "stop"), PolicyError, "such as -inf"),
        (MemoryError("no room"), PolicyError, "MemoryError: no room"),
        (ContextLengthError("full"), ContextLengthError, "full"),
    ],
)
def test_engine_faults(answer: Completion | Exception, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        sample(ScriptedPolicy([answer]), [1], SamplingParams(), seed=0, turn=0, stop_ids=())


def test_missing_completion() -> None:
    class Silent(ScriptedPolicy):
        def generate(self, prompts, params):
            return []

    with pytest.raises(PolicyError, match="0 completions for one prompt"):
        sample(Silent([]), [1], SamplingParams(), seed=0, turn=0, stop_ids=())


def test_cancelled_completion_may_be_empty() -> None:
    done = Completion((), (), "cancelled")
    assert sample(ScriptedPolicy([done]), [1], SamplingParams(), seed=0, turn=0, stop_ids=()) == done
