"""Verdicts to rewards."""

import math

import pytest

from forkgym.envs import rewards
from forkgym.errors import ConfigError
from forkgym.tasks.base import Verdict
from forkgym.tasks.errors import GradingError

HALF = Verdict(score=0.5, resolved=False, stage="unresolved", components={"tests": 0.75})
FULL = Verdict(score=1.0, resolved=True, stage="resolved")
BROKEN = Verdict(score=None, resolved=False, stage="error", error="no report")


def test_named_rewards():
    assert [rewards.apply(rewards.build("resolved"), v) for v in (HALF, FULL)] == [0.0, 1.0]
    assert [rewards.apply(rewards.build("score"), v) for v in (HALF, FULL)] == [0.5, 1.0]
    assert [rewards.apply(rewards.build("tests"), v) for v in (HALF, FULL)] == [0.75, 1.0]
    assert rewards.apply(rewards.build("forkgym.envs.rewards:score"), HALF) == 0.5
    assert rewards.apply(lambda verdict: -1, FULL) == -1.0
    with pytest.raises(ConfigError, match="did you mean 'resolved'"):
        rewards.build("resolve")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_reward_is_finite(value):
    with pytest.raises(GradingError, match="not finite"):
        rewards.apply(lambda verdict: value, FULL)


def test_text_is_no_reward_and_a_number_no_function():
    with pytest.raises(GradingError, match="which is no number"):
        rewards.apply(lambda verdict: "1.0", FULL)  # pyright: ignore
    with pytest.raises(ConfigError, match="got 3"):
        rewards.build(3)  # pyright: ignore


def test_an_unscored_verdict_has_no_reward():
    with pytest.raises(GradingError, match="no report"):
        rewards.apply(rewards.build("resolved"), BROKEN)
    with pytest.raises(GradingError, match="no report"):
        rewards.score(BROKEN)
