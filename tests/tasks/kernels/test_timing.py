"""The statistics of timed calls, on made-up samples: no clock is read."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from forkgym.tasks.kernels.timing import FASTER, Sample, Timing, summarise

WHO = ("candidate", "baseline", "control", "expert", "nothing")
CALL, NOTHING = 3e6, 1e4

Offsets = Callable[[np.random.Generator], float]


def session(seed: int, offset: Offsets, speedup: float = 1.0, noise: float = 0.005, sets: int = 8) -> Timing:
    """31 rounds in ``sets`` sets of workers, each worker off by a factor of its own; the expert 100 times as fast."""
    rng = np.random.default_rng(seed)
    work = dict.fromkeys(WHO, CALL) | {"candidate": CALL / speedup, "expert": CALL / 100, "nothing": 0.0}
    samples: list[Sample] = []
    for number in range(sets):
        factors = {who: np.exp(offset(rng)) for who in WHO}
        for _ in range(31 // sets + (number < 31 % sets)):
            for who in WHO:
                spent = NOTHING + work[who] * factors[who] * np.exp(abs(rng.normal(0, noise)))
                samples.append(Sample(0, number, who, spent, spent))
    return summarise(samples)


def spread(rng: np.random.Generator) -> float:
    """4 % to either side."""
    return rng.normal(0, 0.04)


def two_places(rng: np.random.Generator) -> float:
    """What was measured: where its code lies makes a worker 8 % slower, or not."""
    return 0.08 * rng.integers(2)


def none(rng: np.random.Generator) -> float:
    """All workers alike."""
    return 0.0


@pytest.mark.parametrize("offset", [spread, two_places, none])
def test_workers_that_differ_give_no_speed_up(offset: Offsets) -> None:
    lows = [session(seed, offset).candidate.low for seed in range(100)]
    assert max(lows) < FASTER


def test_what_varies_between_workers_widens_the_interval() -> None:
    """Same rounds, same noise: with offsets the interval is many times as wide, as few sets say little."""
    wide, narrow = session(1, spread).candidate, session(1, none).candidate
    assert wide.high / wide.low > 1.03
    assert narrow.high / narrow.low < 1.01


@pytest.mark.parametrize("speedup", [1.1, 9.0])
def test_a_true_speed_up_is_found(speedup: float) -> None:
    for seed in range(20):
        ratio = session(seed, none, speedup).candidate
        assert ratio.value == pytest.approx(speedup, rel=0.01)
        assert FASTER <= ratio.low <= ratio.value <= ratio.high


def test_the_candidate_is_no_surer_than_the_baseline_is_of_itself() -> None:
    """The control is 5 % off in every set and the candidate looks 5 % faster: no evidence."""
    samples = [
        Sample(0, number, who, spent, spent)
        for number in range(8)
        for who, spent in {"candidate": 100.0, "baseline": 105.0, "control": 100.0, "nothing": 0.0}.items()
    ]
    found = summarise(samples)
    assert found.candidate.value == pytest.approx(1.05)
    assert found.candidate.low == pytest.approx(1.0)
    assert found.undecided
