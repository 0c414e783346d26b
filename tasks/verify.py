"""The proof of a task: the solution scores 1, doing nothing scores 0, each time, and the sandbox holds no answer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forkgym.sandboxes.errors import SandboxError
from forkgym.tasks import leaks
from forkgym.tasks.base import Submission, Task, Verdict
from forkgym.tasks.errors import GradingError, TaskFormatError
from forkgym.tasks.folder import TaskFolder
from forkgym.tasks.grading import judge
from forkgym.tasks.solution import reference
from forkgym.tasks.taskset import TaskSet
from forkgym.tasks.workspace import Bases

REPEATS = 3


@dataclass(frozen=True)
class Proof:
    """What was measured about one task. Scores are the lowest of the solution's and the highest of doing nothing.

    ``flake_rate`` is the share of repeats in which any test of either differed from the first repeat. ``suspects`` are
    those tests and the ones that the solution failed. ``fail_to_pass`` are the tests that the solution passes and doing
    nothing fails; the others pass with both.
    """

    task: str
    digest: str
    oracle: float
    nothing: float
    flake_rate: float
    repeats: int
    problems: tuple[str, ...] = ()
    suspects: tuple[str, ...] = ()
    fail_to_pass: tuple[str, ...] = ()

    @property
    def good(self) -> bool:
        return not self.problems

    def as_dict(self) -> dict[str, Any]:
        """What ``proof.json`` says of a task."""
        return {
            "digest": self.digest,
            "oracle": self.oracle,
            "nothing": self.nothing,
            "flake_rate": self.flake_rate,
            "repeats": self.repeats,
            "fail_to_pass": list(self.fail_to_pass),
        }


def verify(
    tasks: Iterable[Task],
    bases: Bases,
    repeats: int = REPEATS,
    progress: Callable[[Proof], None] | None = None,
) -> list[Proof]:
    """Prove each task; ``progress`` hears of each as it is done. What is wrong with a task stands in its proof.

    Raises ``GradingError`` if the machine, and not the task, failed.
    """
    if repeats < 1:
        raise ValueError(f"repeats must be at least 1, not {repeats}")
    proofs: list[Proof] = []
    for task in tasks:
        proof = prove(task, bases, repeats)
        proofs.append(proof)
        if progress is not None:
            progress(proof)
    return proofs


def prove(task: Task, bases: Bases, repeats: int = REPEATS) -> Proof:
    """Measure one task. Raises ``GradingError`` if no verdict could be had."""
    try:
        oracle_work = reference(task, bases)
    except SandboxError as error:
        raise GradingError(f"{task.id}: {error}") from error
    solved = [_scored(task, oracle_work, bases) for _ in range(repeats)]
    idle = [_scored(task, Submission({}), bases) for _ in range(repeats)]
    differing = [_differing(solved[0], one) | _differing(idle[0], two) for one, two in zip(solved, idle, strict=True)]
    flaky = sum(map(bool, differing)) / repeats
    unstable = sorted(set[str]().union(*differing))
    oracle, nothing = min(map(_score, solved)), max(map(_score, idle))
    problems = [oracle_work.malformed] if oracle_work.malformed else []
    problems += [*_failures(solved), *(["doing nothing scores 1"] if nothing > 0 else [])]
    named = ", ".join(unstable[:5]) + (", …" if len(unstable) > 5 else "")
    problems += [f"results differ in {flaky:.0%} of the repeats: {named}"] if flaky else []
    with bases.box(task) as box:
        problems += leaks.find(box, task)
    failed = {finding.id for verdict in solved for finding in verdict.findings if not finding.passed}
    suspects = tuple(test for test in task.grading.tests if test in failed.union(unstable))
    passed, before = ({finding.id for finding in runs[0].findings if finding.passed} for runs in (solved, idle))
    mended = tuple(test for test in task.grading.tests if test in passed - before)
    return Proof(task.id, task.digest, oracle, nothing, flaky, repeats, tuple(problems), suspects, mended)


def state_of(task: Task) -> str:
    """``fresh``, ``stale`` (the task changed since), ``missing``, or ``failed`` (it says that the task is bad)."""
    if not task.proof:
        return "missing"
    if task.proof.get("digest") != task.digest:
        return "stale"
    fine = task.proof.get("oracle") == 1.0 and task.proof.get("nothing") == 0.0 and task.proof.get("flake_rate") == 0.0
    return "fresh" if fine else "failed"


def write_proofs(proofs: Iterable[Proof], tasks: TaskSet) -> list[Path]:
    """Write ``proof.json`` beside the ``task.yaml`` of each task, and return the files.

    Raises ``TaskFormatError`` for a task that comes from no folder.
    """
    by_folder: dict[TaskFolder, dict[str, Any]] = defaultdict(dict)
    folders = {entry.id: entry.folder for entry in tasks.entries}
    for proof in proofs:
        folder = folders.get(proof.task)
        if folder is None:
            raise TaskFormatError(f"{proof.task}: comes from no folder, so its proof cannot be stored")
        by_folder[folder][proof.task] = proof.as_dict()
    return [folder.write_proofs(fresh) for folder, fresh in by_folder.items()]


def _scored(task: Task, submission: Submission, bases: Bases) -> Verdict:
    try:
        verdict = judge(task, submission, bases.box)
    except SandboxError as error:
        raise GradingError(f"{task.id}: {error}") from error
    if verdict.score is None:
        raise GradingError(f"{task.id}: not proven, because grading failed: {verdict.error}")
    return verdict


def _score(verdict: Verdict) -> float:
    return verdict.score or 0.0


def _differing(first: Verdict, other: Verdict) -> set[str]:
    """The tests that ended otherwise than in the first repeat."""
    before, after = ({(finding.id, finding.passed) for finding in verdict.findings} for verdict in (first, other))
    return {test for test, _ in before ^ after}


def _failures(verdicts: list[Verdict]) -> list[str]:
    found: dict[str, None] = {}
    for verdict in verdicts:
        if verdict.stage == "timeout":
            found["the solution runs out of time (timeout)"] = None
        for finding in verdict.findings:
            if not finding.passed:
                found[f"the solution fails {finding.id}: {finding.message}"] = None
    return list(found)
