"""From a verdict to a number: named reward functions, or any ``module:function`` of that signature."""

from __future__ import annotations

import math

from forkgym.envs.base import RewardFunction
from forkgym.errors import ConfigError
from forkgym.registry import resolve
from forkgym.tasks.base import Verdict
from forkgym.tasks.errors import GradingError

REWARDS = {
    "resolved": "forkgym.envs.rewards:resolved",
    "score": "forkgym.envs.rewards:score",
    "tests": "forkgym.envs.rewards:tests",
}


def resolved(verdict: Verdict) -> float:
    """1.0 if the task is solved, else 0.0."""
    return float(verdict.resolved)


def score(verdict: Verdict) -> float:
    """The verdict's own score in [0, 1]. For hidden tests that is 1 if all pass, else 0."""
    if verdict.score is None:
        raise GradingError(f"an unscored verdict has no reward: {verdict.error}")
    return verdict.score


def tests(verdict: Verdict) -> float:
    """The share of hidden tests that pass; the score, where the grader has no tests."""
    return verdict.components.get("tests", score(verdict))


def build(reward: str | RewardFunction) -> RewardFunction:
    """The function of this name, or the function itself."""
    if isinstance(reward, str):
        return resolve("reward", reward, REWARDS)
    if not callable(reward):
        raise ConfigError(f"reward is a name, a dotted path or a function of a verdict, got {reward!r}")
    return reward


def apply(function: RewardFunction, verdict: Verdict) -> float:
    """The finite reward of a scored verdict. Raises ``GradingError`` if it is unscored, and for text, NaN, infinity."""
    if verdict.score is None:
        raise GradingError(f"the grader gave no score: {verdict.error}")
    found: object = function(verdict)
    if isinstance(found, str | bytes):  # float() would read them
        raise GradingError(f"the reward function returned {found!r}, which is no number")
    value = float(found)  # pyright: ignore[reportArgumentType]
    if not math.isfinite(value):
        raise GradingError(f"the reward function returned {value}, which is not finite")
    return value
