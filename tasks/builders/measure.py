"""Which hidden tests tell the fix: run without it and with it, by the runner that will judge."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from forkgym.tasks import submission, tree
from forkgym.tasks.base import FileChange, Submission, Task, Verdict
from forkgym.tasks.builders.history import UnfitCommit
from forkgym.tasks.builders.instruction import Failure
from forkgym.tasks.builders.language import Project
from forkgym.tasks.errors import GradingError
from forkgym.tasks.grading import judge
from forkgym.tasks.verify import Proof, prove
from forkgym.tasks.workspace import Bases

REPEATS = 3
ROUNDS = 3
MAX_TESTS = 3000
FIRST_TIMEOUT = 300.0
_NETWORK = re.compile(
    r"name resolution|name or service not known|network is unreachable|nodename nor servname|getaddrinfo|"
    r"failed to resolve|max retries exceeded|no address associated|ENETUNREACH|EAI_AGAIN|dial tcp",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Tests:
    """What was found. ``seconds``: the longest run; ``failures`` say how each of ``fail_to_pass`` fails before."""

    fail_to_pass: tuple[str, ...]
    pass_to_pass: tuple[str, ...]
    failures: tuple[Failure, ...]
    seconds: float


def find(task: Task, project: Project, paths: Sequence[str], bases: Bases) -> Tests:
    """Run the tests in these hidden files once without and once with the solution. ``task`` lists no test yet.

    Raises ``UnfitCommit``, and ``GradingError`` if the machine, and not the repository, failed.
    """
    solution = submission.of_files(task.oracle)
    with bases.box(task) as box:
        submission.apply(box, solution, task.workdir)
        tree.write(box, task.workdir, {path: FileChange(data) for path, data in task.hidden.items()})
        ids = project.collect(box, task.workdir, paths)
    if len(ids) > MAX_TESTS:
        raise UnfitCommit("too many tests", f"{len(ids)} in the changed test files; at most {MAX_TESTS}")
    listed = replace(task, grading=replace(task.grading, tests=tuple(ids), timeout=FIRST_TIMEOUT))
    after, before = (run(listed, task, work, bases) for work in (solution, Submission({})))
    passed, messages = _passed(after), _messages(before)
    telling = [test for test in ids if test in passed and test in messages]
    if not telling:
        raise _why_not(passed, _messages(after))
    kept = [test for test in ids if test in passed and test not in messages]
    failures = tuple(Failure(test, messages[test]) for test in telling)
    return Tests(tuple(telling), tuple(kept), failures, max(_seconds(after), _seconds(before)))


def passing(task: Task, project: Project, paths: Sequence[str], bases: Bases) -> tuple[tuple[str, ...], float]:
    """The tests in these hidden files that pass as things are, and the seconds that a run takes.

    Raises ``UnfitCommit`` if there is none, and ``GradingError``.
    """
    with bases.box(task) as box:
        ids = project.collect(box, task.workdir, paths)
    if len(ids) > MAX_TESTS:
        raise UnfitCommit("too many tests", f"{len(ids)}; at most {MAX_TESTS}")
    listed = replace(task, grading=replace(task.grading, tests=tuple(ids), timeout=FIRST_TIMEOUT))
    verdict = run(listed, task, Submission({}), bases)
    found = _passed(verdict)
    if not found:
        raise UnfitCommit("no test passes", next(iter(_messages(verdict).values()), "")[:300])
    return tuple(test for test in ids if test in found), _seconds(verdict)


def settle(task: Task, telling: Sequence[str], bases: Bases, repeats: int = REPEATS) -> tuple[Task, Proof]:
    """The task with those of its tests that end alike in every repeat, and its proof. ``telling`` are fail-to-pass.

    Raises ``UnfitCommit`` if no fail-to-pass test is left or the task is not sound, and ``GradingError``.
    """
    for _ in range(ROUNDS):
        proof = prove(task, bases, repeats)
        if proof.good:
            return task, proof
        if not proof.suspects:
            leaky = any(" in /" in problem or "git " in problem for problem in proof.problems)
            raise UnfitCommit("leaks the fix" if leaky else "not sound", "; ".join(proof.problems)[:500])
        kept = tuple(test for test in task.grading.tests if test not in proof.suspects)
        if not set(kept) & set(telling):
            break
        task = replace(task, grading=replace(task.grading, tests=kept))
    raise UnfitCommit("flaky", "tests that tell the fix end differently from run to run")


def run(listed: Task, base: Task, work: Submission, bases: Bases) -> Verdict:
    """The verdict on ``work``. ``base`` is the same task without tests: one snapshot serves many lists.

    Raises ``UnfitCommit`` if the run says nothing, and ``GradingError`` if the machine failed.
    """
    verdict = judge(listed, work, lambda _: bases.box(base))
    if verdict.error is not None:
        raise GradingError(f"{listed.id}: {verdict.error}")
    if verdict.stage == "timeout":
        raise UnfitCommit("tests take too long", f"more than {listed.grading.timeout:g} s")
    # Tests that cannot even be compiled break a run, too; then none of them passes.
    if verdict.hacks or (verdict.disproved and _passed(verdict)):
        raise UnfitCommit("tests disturb their run", "; ".join([*verdict.hacks, verdict.disproved])[:500])
    return verdict


def _passed(verdict: Verdict) -> set[str]:
    return {finding.id for finding in verdict.findings if finding.passed}


def _messages(verdict: Verdict) -> Mapping[str, str]:
    failed = {finding.id: finding.message for finding in verdict.findings if not finding.passed and finding.id != "run"}
    why = verdict.disproved
    return {test: why if why and message.startswith("not run") else message for test, message in failed.items()}


def _seconds(verdict: Verdict) -> float:
    return float(verdict.provenance["seconds"])


def _why_not(passed: set[str], failed: Mapping[str, str]) -> UnfitCommit:
    if any(_NETWORK.search(message) for message in failed.values()):
        return UnfitCommit("needs the network", next(iter(failed.values()))[:300])
    if not passed:
        return UnfitCommit("tests fail with the fix", next(iter(failed.values()), "")[:300])
    return UnfitCommit("no test tells the fix", f"{len(passed)} tests pass with it, and without it")
