"""Rewards of kernel tasks, by name. All give 0 to a dishonest kernel; ``s`` is its speed-up over the baseline.

``s`` is 1 where the interval does not exclude that the kernel is no faster. Who proposed what: fast_p KernelBench;
kevin Kevin; kernelgym KernelGYM; gso_opt95 GSO; min_gain SWE-Perf; staged RLPF.
"""

from __future__ import annotations

import math

from forkgym.envs.base import Evidence
from forkgym.envs.errors import EnvError

BROKEN = -0.2


def kernel(evidence: Evidence) -> float:
    """-0.2 if it does not build or run, 0 if wrong, else 0.3 + 0.7 (log s / log of the expert's), the ratio up to 1.2.

    ``s`` is the low end of its interval. Nothing changed gives 0.
    """
    if _void(evidence):
        return 0.0
    if not _part(evidence, "ran"):
        return BROKEN
    if not correct(evidence):
        return 0.0
    return 0.3 + 0.7 * _progress(evidence, 1.2)


def correct(evidence: Evidence) -> float:
    """1 for a right and honest kernel, however slow."""
    return 0.0 if _void(evidence) else _part(evidence, "correct")


def fast_1(evidence: Evidence) -> float:
    """fast_p with p = 1: right and faster than the baseline."""
    return fast_p(evidence, 1.0)


def fast_2(evidence: Evidence) -> float:
    """fast_p with p = 2: right and more than twice as fast as the baseline."""
    return fast_p(evidence, 2.0)


def fast_p(evidence: Evidence, p: float) -> float:
    """1 if right and more than ``p`` times as fast, else 0."""
    return float(correct(evidence) > 0 and _part(evidence, "speedup") > p)


def kevin(evidence: Evidence) -> float:
    """0.3 + s if right, else 0."""
    return 0.3 + _part(evidence, "speedup") if correct(evidence) else 0.0


def kernelgym(evidence: Evidence) -> float:
    """0.5 + 0.5 min(s, 3) if right, else 0; without its profiler's coverage, as all of our timed call is the kernel."""
    return 0.5 + 0.5 * min(_part(evidence, "speedup"), 3.0) if correct(evidence) else 0.0


def gso_opt95(evidence: Evidence) -> float:
    """1 if right and at least 95 % as fast as the expert, else 0."""
    return float(correct(evidence) > 0 and _part(evidence, "expert_ratio") >= 0.95)


def min_gain(evidence: Evidence) -> float:
    """The share of time that is saved for certain: 1 - 1 / (low end of the interval of s), or 0."""
    return max(0.0, 1.0 - 1.0 / _part(evidence, "ci_low")) if correct(evidence) else 0.0


def staged(evidence: Evidence) -> float:
    """Failing kernels by how far they got, in [0, 0.5); right ones by their place between baseline and expert.

    0 does not build, 0.1 builds, 0.2 runs, plus 0.29 times the share of right calls; right: 0.5 to 1.
    """
    parts = evidence.verdict.components
    if correct(evidence):
        return 0.5 + 0.5 * _progress(evidence, 1.0)
    if evidence.verdict.hacks or not parts.get("compiled"):
        return 0.0
    return 0.2 + 0.29 * parts.get("share_right", 0.0) if parts.get("ran") else 0.1


def _void(evidence: Evidence) -> bool:
    """True if there is no kernel to speak of: a dishonest one, or nothing was handed in that could be graded."""
    return bool(evidence.verdict.hacks) or evidence.verdict.stage in ("empty", "malformed")


def _progress(evidence: Evidence, most: float) -> float:
    """log s / log s*, from 0 to ``most``."""
    if _part(evidence, "speedup") <= 1.0:
        return 0.0
    low, best = _part(evidence, "ci_low"), _part(evidence, "expert_speedup")
    return min(most, max(0.0, math.log(low) / math.log(best)))


def _part(evidence: Evidence, name: str) -> float:
    """A component of the verdict. Without it the reward would be a guess, so the episode fails instead."""
    try:
        return evidence.verdict.components[name]
    except KeyError as error:
        raise EnvError(
            f"the verdict has no {name!r}, of which these rewards are made: they are for tasks of the family kernel"
        ) from error
