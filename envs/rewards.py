"""From a verdict to a reward: named functions, and weighted sums of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

from forkgym.envs.base import Evidence, RewardFunction
from forkgym.errors import ConfigError
from forkgym.registry import resolve, unknown
from forkgym.tasks.errors import GradingError

REWARDS = {
    "applies": "forkgym.envs.components:applies",
    "faithful": "forkgym.envs.components:faithful",
    "fixed": "forkgym.envs.components:fixed",
    "focused": "forkgym.envs.components:focused",
    "kept": "forkgym.envs.components:kept",
    "kernel": "forkgym.envs.kernels:kernel",
    "kernel_correct": "forkgym.envs.kernels:correct",
    "kernel_fast_1": "forkgym.envs.kernels:fast_1",
    "kernel_fast_2": "forkgym.envs.kernels:fast_2",
    "kernel_gso": "forkgym.envs.kernels:gso_opt95",
    "kernel_kernelgym": "forkgym.envs.kernels:kernelgym",
    "kernel_kevin": "forkgym.envs.kernels:kevin",
    "kernel_min_gain": "forkgym.envs.kernels:min_gain",
    "kernel_staged": "forkgym.envs.kernels:staged",
    "lint": "forkgym.envs.lint:lint",
    "minimal": "forkgym.envs.components:minimal",
    "reproduced": "forkgym.envs.components:reproduced",
    "resolved": "forkgym.envs.rewards:resolved",
    "score": "forkgym.envs.rewards:score",
    "tested": "forkgym.envs.components:tested",
    "tests": "forkgym.envs.rewards:tests",
}
EXTRAS = {"lint": "swe"}


def resolved(evidence: Evidence) -> float:
    """1.0 if the task is solved, else 0.0."""
    return float(evidence.verdict.resolved)


def score(evidence: Evidence) -> float:
    """The verdict's own score in [0, 1]. For hidden tests that is 1 if all pass, else 0."""
    if evidence.verdict.score is None:
        raise GradingError(f"an unscored verdict has no reward: {evidence.verdict.error}")
    return evidence.verdict.score


def tests(evidence: Evidence) -> float:
    """The share of hidden tests that pass; the score, where the grader has no tests."""
    return evidence.verdict.components.get("tests", score(evidence))


class Weighted:
    """``gate`` times the sum of ``weights``: ``Weighted({"resolved": 1, "minimal": 0.2}, gate="applies")``.

    Parts are reward functions by name. Without a gate, or where it gives 1, the sum counts in full.
    Raises ``ConfigError`` for unknown names, weights that are no finite numbers, and an empty sum.
    """

    def __init__(self, weights: Mapping[str, float], gate: str | None = None) -> None:
        if not weights:
            raise ConfigError("reward weights are empty; name at least one reward")
        for name, weight in weights.items():
            number = isinstance(weight, int | float) and not isinstance(weight, bool)  # pyright: ignore
            if not number or not math.isfinite(weight):
                raise ConfigError(f"the weight of reward {name!r} is {weight!r}; give a finite number")
        self._terms = [(name, float(weight), _named(name)) for name, weight in weights.items()]
        self._gate = None if gate is None else (gate, _named(gate))

    def __call__(self, evidence: Evidence) -> float:
        """The weighted sum."""
        return self.total(self.parts(evidence))

    def parts(self, evidence: Evidence) -> dict[str, float]:
        """The value of each part before it is weighted, the gate's included."""
        found = {name: _checked(function, evidence) for name, _, function in self._terms}
        if self._gate is not None and self._gate[0] not in found:
            found[self._gate[0]] = _checked(self._gate[1], evidence)
        return found

    def total(self, parts: Mapping[str, float]) -> float:
        """The reward that these parts make."""
        total = sum(weight * parts[name] for name, weight, _ in self._terms)
        return total if self._gate is None else parts[self._gate[0]] * total


def build(reward: str | RewardFunction | Mapping[str, Any]) -> RewardFunction:
    """The function of this name, the function itself, or ``{"weights": {...}, "gate": ...}`` as ``Weighted``."""
    if isinstance(reward, str):
        return _named(reward)
    if isinstance(reward, Mapping):
        spec = cast("Mapping[str, Any]", reward)
        for key in spec:
            if key not in ("weights", "gate"):
                raise ConfigError(f"reward: {unknown('key', key, ['weights', 'gate'])}")
        if not isinstance(spec.get("weights"), Mapping):
            raise ConfigError(f'reward is a name, a function or {{"weights": {{name: number}}}}, got {dict(spec)!r}')
        return Weighted(spec["weights"], spec.get("gate"))
    if not callable(reward):
        raise ConfigError(f"reward is a name, a dotted path, weights, or a function of the evidence, got {reward!r}")
    return reward


def apply(function: RewardFunction, evidence: Evidence) -> tuple[float, dict[str, float]]:
    """The finite reward of a scored verdict, and its parts if it is ``Weighted``.

    Raises ``GradingError`` if the verdict is unscored, and for text, NaN, infinity.
    """
    if evidence.verdict.score is None:
        raise GradingError(f"the grader gave no score: {evidence.verdict.error}")
    if isinstance(function, Weighted):
        parts = function.parts(evidence)
        return function.total(parts), parts
    return _checked(function, evidence), {}


def _named(name: str) -> RewardFunction:
    return resolve("reward", name, REWARDS, EXTRAS)


def _checked(function: RewardFunction, evidence: Evidence) -> float:
    found: object = function(evidence)
    if isinstance(found, str | bytes):  # float() would read them
        raise GradingError(f"the reward function returned {found!r}, which is no number")
    value = float(found)  # pyright: ignore[reportArgumentType]
    if not math.isfinite(value):
        raise GradingError(f"the reward function returned {value}, which is not finite")
    return value
