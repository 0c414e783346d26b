"""The backends ``c`` and ``cpp``: compile, look at the binary, check, time."""

from __future__ import annotations

import json
import secrets
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, get_args

from forkgym.sandboxes.base import Sandbox
from forkgym.tasks.base import Task
from forkgym.tasks.errors import GradingError
from forkgym.tasks.kernels import build, detectors, timing
from forkgym.tasks.kernels.spec import Distribution, KernelModel

SESSIONS = 4
SETS = 8
"""How many times a session starts all workers anew."""
_DISTRIBUTIONS = get_args(Distribution)
_ALIGNED, _AT_END, _AT_START = 0, 1, 2
_MAX_REPORT = 8 << 20
_MESSAGE = 600


@dataclass(frozen=True)
class Measurement:
    """How far a kernel got. ``stage`` is the first of builds, runs, correct, honest that it failed, or ``timed``."""

    stage: str
    message: str = ""
    hacks: tuple[str, ...] = ()
    timed_out: bool = False
    right: float = 0.0
    timing: timing.Timing | None = None
    seconds: Mapping[str, float] = field(default_factory=dict[str, float])


def measure(
    box: Sandbox, task: Task, spec: KernelModel, source: str, *, grading: bool, limit: float = 120.0
) -> Measurement:
    """Compile the file at ``source`` in the sandbox, check and time it within about ``limit`` seconds.

    With ``grading`` on hidden shapes and against the expert, in a clean sandbox; else on the public shapes.
    Raises ``GradingError`` if a trusted part fails or the machine is too noisy to say anything, and ``SandboxError``.
    """
    place = f"/tmp/kernel-{secrets.token_hex(8)}"
    box.write_file(f"{place}/.keep", b"")
    problem, facts = build.compile_candidate(box, spec, place, source)
    if problem:
        return Measurement("builds", problem[:_MESSAGE])
    if hacks := detectors.of_binary(spec, facts):
        return Measurement("honest", hacks[0], tuple(hacks))
    paths = build.place_trusted(box, task, spec, place, grading)
    # The largest first: what is wrong with it says more of why.
    shapes = sorted(spec.shapes.hidden if grading else spec.shapes.public, key=spec.elements, reverse=True)
    to_time = spec.shapes.to_time if grading else spec.shapes.public[-1:]
    trials = trial_steps(spec, len(shapes))
    usual = _DISTRIBUTIONS.index(spec.check.inputs[0])
    timed = [build.Step(len(shapes) + i, usual, _ALIGNED) for i in range(len(to_time))]
    session = _Session(box, spec, [*shapes, *to_time], paths, f"{place}/runner", limit, grading)
    with timing.lease() as core:
        return _judge(session, core, trials, timed)


def timed_steps(shapes: Sequence[build.Step], rounds: int) -> list[build.Step]:
    """Each shape for ``rounds`` rounds, shared among ``SETS`` sets of fresh workers that take turns."""
    shares = [rounds // SETS + (number < rounds % SETS) for number in range(SETS)]
    return [replace(shape, rounds=share) for share in shares if share for shape in shapes]


def trial_steps(spec: KernelModel, shapes: int) -> list[build.Step]:
    """The checked calls: each distribution on each shape, ``trials`` times, at changing places in memory."""
    places = (_AT_END, _AT_START, _ALIGNED)
    kinds = [_DISTRIBUTIONS.index(name) for name in spec.check.inputs]
    cases = [(shape, kind) for shape in range(shapes) for kind in kinds]
    return [
        build.Step(shape, kind, places[(number + repeat) % 3])
        for repeat in range(max(2, spec.check.trials))
        for number, (shape, kind) in enumerate(cases)
    ]


class _Session:
    """Runs jobs of one kernel and keeps what they said."""

    def __init__(
        self,
        box: Sandbox,
        spec: KernelModel,
        shapes: Sequence[Mapping[str, int]],
        paths: Mapping[str, str],
        runner: str,
        limit: float,
        grading: bool,
    ) -> None:
        self.grading = grading
        self.box, self.spec, self.shapes, self.paths, self.runner, self.limit = box, spec, shapes, paths, runner, limit

    def run(self, steps: Sequence[build.Step], core: int) -> list[dict[str, Any]]:
        """The runner's records. Raises ``GradingError`` if it broke."""
        text = build.job_text(self.spec, self.shapes, steps, self.paths, core)
        # A copy: whoever was forked while the file was written may still hold it open, and it would not be run.
        start = ("/bin/sh", "-c", 'cp "$0" "$0.$$" && exec "$0.$$"', self.runner)
        result = self.box.exec(
            start, stdin=text.encode(), timeout=self.limit, cwd="/", user="root", max_output=_MAX_REPORT
        )
        records = [
            json.loads(line) for line in result.stdout.splitlines() if line.startswith(b"{") and line.endswith(b"}")
        ]
        if result.timed_out:
            return [*records, {"k": "late"}]
        broken = next((record["what"] for record in records if record["k"] == "broken"), "")
        if broken or not result.ok or result.truncated:
            raise GradingError(
                f"the kernel runner broke (exit code {result.exit_code}): {broken} {result.stderr[-500:]!r}"
            )
        return records


def _judge(session: _Session, core: int, trials: list[build.Step], timed: list[build.Step]) -> Measurement:
    records = session.run([*trials, *timed_steps(timed, session.spec.measure.pairs)], core)
    if (failed := _failure(session, records, len(trials))) is not None:
        return failed
    samples = _samples(records)
    result = timing.summarise(samples)
    for _ in range(SESSIONS):
        if not result.undecided or (result.pairs >= timing.PAIRS_AT_MOST and result.quiet):
            break
        start = 0 if result.pairs >= timing.PAIRS_AT_MOST else result.pairs  # too noisy: begin anew
        records = session.run(timed_steps(timed, min(timing.PAIRS_MORE, timing.PAIRS_AT_MOST - start)), core)
        if (failed := _failure(session, records, len(trials))) is not None:
            return failed
        samples = _samples(records, start) + (samples if start else [])
        result = timing.summarise(samples)
    if not result.quiet and session.grading:
        raise GradingError(
            f"the machine is too noisy: the baseline came out {result.control.value:.3f} times as fast as itself; "
            "measure on a quieter machine or run fewer measurements at once"
        )
    hacks = detectors.of_timing(result)
    if hacks:
        return Measurement("honest", hacks[0], tuple(hacks), right=1.0, timing=result)
    return Measurement("timed", right=1.0, timing=result)


def _samples(records: Sequence[Mapping[str, Any]], run: int = 0) -> list[timing.Sample]:
    return [
        timing.Sample(r["shape"], (run, r["set"]), r["who"], float(r["cpu"]), float(r["wall"]))
        for r in records
        if r["k"] == "time"
    ]


def _failure(session: _Session, records: Sequence[Mapping[str, Any]], trials: int) -> Measurement | None:
    """What went wrong, if anything; the runner stops at the first wrong call."""
    checks = [record for record in records if record["k"] == "check"]
    right = max(0, len(checks) - 1) / trials
    last: Mapping[str, Any] = records[-1] if records else {"k": "nothing"}
    if last["k"] == "end":
        return None
    if last["k"] == "load":
        if last["who"] != "candidate":
            raise GradingError(f"the {last['who']} of the task cannot be loaded")
        return Measurement(
            "builds", f"it cannot be loaded: is there a function {session.spec.function}, with C linkage?"
        )
    if last["k"] == "late":
        return Measurement("runs", f"not done in {session.limit:g} s", timed_out=True, right=right)
    if last["k"] != "check":
        raise GradingError(f"the kernel runner stopped at {dict(last)!r}")
    hacks = tuple(detectors.of_check(last))
    where = f"{_DISTRIBUTIONS[last['dist']]} inputs, shape {_shape(session, last['shape'])}"
    if last["outcome"] == 2:
        message = f"a call took longer than {session.spec.measure.call_timeout:g} s ({where})"
        return Measurement("runs", message, hacks, timed_out=True, right=right)
    if last["outcome"]:
        how = signal.strsignal(last["signal"]) if last["signal"] else "ended its process"
        return Measurement("honest" if hacks else "runs", f"{how} ({where})", hacks, right=right)
    if hacks:
        return Measurement("honest", hacks[0], hacks, right=right)
    size = "" if last["worst"] > 1e200 else f", by up to {last['worst']:.2g} of the output's root mean square"
    message = f"{last['wrong']} of {last['total']} elements are wrong{size} ({where})"
    return Measurement("correct", message, right=right)


def _shape(session: _Session, index: int) -> str:
    return ", ".join(f"{key}={value}" for key, value in session.shapes[index].items())
