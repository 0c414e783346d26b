"""From clocks to a speed-up with an interval, and a core that one measurement at a time may have."""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import time
from collections.abc import Generator, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from forkgym.sandboxes.state import state_dir
from forkgym.tasks.errors import GradingError

PAIRS_AT_MOST, PAIRS_MORE = 61, 25
FASTER = 1.03
"""A speed-up whose interval begins below this counts as none."""
AS_GOOD = 0.95
"""Share of the expert's speed-up that counts as all of it."""
NOISE = 0.02
"""How far the baseline may be from itself before a session is no evidence."""
_QUANTILE = 10.0
_RESAMPLES = 400
_PATIENCE = 120.0


@dataclass(frozen=True)
class Sample:
    """One timed call. Nanoseconds of processor and of wall time; ``workers`` names the set of processes it was made in.

    The calls of one shape, kernel and set are in the order of rounds.
    """

    shape: int
    workers: Hashable
    who: str
    cpu: float
    wall: float


@dataclass(frozen=True)
class Ratio:
    """How many times faster than the baseline: estimate and 95 % interval."""

    value: float
    low: float
    high: float

    def straddles(self, threshold: float) -> bool:
        """Whether the interval does not say on which side of the threshold it lies."""
        return self.low < threshold < self.high


@dataclass(frozen=True)
class Timing:
    """One session. ``control`` is the baseline against itself; ``expert`` is absent from a public measurement."""

    candidate: Ratio
    control: Ratio
    expert: Ratio | None
    pairs: int
    cpu_seconds: float  # of one call of the candidate
    wall_over_cpu: float
    baseline_wall_over_cpu: float
    unexplained: float  # seconds of wall time beyond processor time that each call of the candidate took at least

    @property
    def quiet(self) -> bool:
        """Whether the baseline came out as fast as itself."""
        return abs(math.log(self.control.value)) <= NOISE

    @property
    def undecided(self) -> bool:
        """Whether more pairs could change what is said of the candidate."""
        if not self.quiet or self.candidate.straddles(FASTER):
            return True
        good = self.expert
        return (
            good is not None and AS_GOOD * good.low < self.candidate.high and self.candidate.low < AS_GOOD * good.high
        )


def summarise(samples: Iterable[Sample], seed: int = 0) -> Timing:
    """The 10th percentile of processor time per kernel and shape, as ratios; several shapes by their geometric mean.

    What it costs to call a kernel that does nothing is taken off first. Raises ``GradingError`` without samples.
    """
    cpu, wall, sets = _tables(samples)
    if not cpu:
        raise GradingError("the runner timed nothing")
    rng = np.random.default_rng(seed)
    rounds = min(len(table["baseline"]) for table in cpu.values())
    picks = {shape: _picks(sets[shape], rng) for shape in cpu}
    ratios = {
        who: _ratio(cpu, who, picks) for who in ("candidate", "control", "expert") if who in next(iter(cpu.values()))
    }
    return Timing(
        _no_surer_than(ratios["control"], ratios["candidate"]),
        ratios["control"],
        ratios.get("expert"),
        rounds,
        float(np.mean([_p10(table["candidate"]) for table in cpu.values()])) / 1e9,
        _slack(cpu, wall, "candidate"),
        _slack(cpu, wall, "baseline"),
        max(float(np.min(wall[shape]["candidate"] - table["candidate"])) for shape, table in cpu.items()) / 1e9,
    )


_Tables = dict[int, dict[str, np.ndarray]]


def _tables(samples: Iterable[Sample]) -> tuple[_Tables, _Tables, dict[int, list[np.ndarray]]]:
    """By shape and kernel: processor and wall times; and by shape: the places of each set of workers in them."""
    cpu: dict[int, dict[str, list[float]]] = {}
    wall: dict[int, dict[str, list[float]]] = {}
    sets: dict[int, dict[Hashable, list[int]]] = {}
    for sample in samples:
        cpu.setdefault(sample.shape, {}).setdefault(sample.who, []).append(sample.cpu)
        wall.setdefault(sample.shape, {}).setdefault(sample.who, []).append(sample.wall)
        if sample.who == "baseline":
            place = len(cpu[sample.shape]["baseline"]) - 1
            sets.setdefault(sample.shape, {}).setdefault(sample.workers, []).append(place)
    first, second = (
        {shape: {who: np.array(times) for who, times in table.items()} for shape, table in tables.items()}
        for tables in (cpu, wall)
    )
    return first, second, {shape: [np.array(places) for places in table.values()] for shape, table in sets.items()}


def _picks(sets: Sequence[np.ndarray], rng: np.random.Generator) -> np.ndarray:
    """Resamples x rounds: as many places as there are, of sets of workers drawn first and of rounds within them then.

    What one set of processes has in common, such as where its code lies in memory, is no evidence about the kernel.
    """
    rounds = sum(len(places) for places in sets)
    width = max(len(places) for places in sets)
    lengths = np.array([len(places) for places in sets])
    padded = np.array([np.resize(places, width) for places in sets])
    drawn = rng.choice(len(sets), size=(_RESAMPLES, len(sets)), p=lengths / rounds)
    which = drawn[:, np.arange(rounds) % len(sets)]
    return padded[which, rng.integers(lengths[which])]


def _p10(times: np.ndarray) -> float:
    return float(np.percentile(times, _QUANTILE))


def _ratio(cpu: _Tables, who: str, picks: Mapping[int, np.ndarray]) -> Ratio:
    """Baseline over ``who``; the interval resamples whole rounds, as both of a round share the machine's mood."""
    logs, resampled = 0.0, np.zeros(_RESAMPLES)
    for shape, table in cpu.items():
        cost = _p10(table["nothing"])
        for name, sign in (("baseline", 1.0), (who, -1.0)):
            times = np.maximum(table[name] - cost, 0.01 * table[name])
            logs += sign * math.log(_p10(times))
            resampled += sign * np.log(np.percentile(times[picks[shape]], _QUANTILE, axis=1))
    low, high = np.percentile(resampled / len(cpu), [2.5, 97.5])
    value = logs / len(cpu)
    return Ratio(math.exp(value), math.exp(min(value, float(low))), math.exp(max(value, float(high))))


def _no_surer_than(control: Ratio, ratio: Ratio) -> Ratio:
    """With an interval that reaches as far to either side as that of the baseline against itself reaches from 1."""
    reach = max(control.high, 1 / control.low)
    return Ratio(ratio.value, min(ratio.low, ratio.value / reach), max(ratio.high, ratio.value * reach))


def _slack(cpu: _Tables, wall: _Tables, who: str) -> float:
    """Smallest wall over smallest processor time, above those of no work: well above 1 if work is done elsewhere."""

    def least(tables: _Tables, shape: int) -> float:
        times = tables[shape]
        return float(max(np.min(times[who]) - np.min(times["nothing"]), 0.01 * np.min(times[who])))

    return max(least(wall, shape) / least(cpu, shape) for shape in cpu)


@contextlib.contextmanager
def lease(cores: Sequence[int] | None = None) -> Generator[int]:
    """A core of this machine that no other measurement uses, in any process that shares the state directory.

    Waits while all are taken. Raises ``GradingError`` after two minutes.
    """
    allowed = sorted(os.sched_getaffinity(0)) if cores is None else list(cores)
    folder = state_dir() / "cores"
    folder.mkdir(mode=0o700, exist_ok=True)
    deadline = time.monotonic() + _PATIENCE
    while True:
        for core in allowed:
            with open(folder / f"{core}.lock", "a") as handle:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    continue
                yield core
                return
        if time.monotonic() > deadline:
            raise GradingError(f"no free core to measure on in {_PATIENCE:g} s; other measurements hold {allowed}")
        time.sleep(0.02)
