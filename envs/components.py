"""Reward components beyond the verdict's score, each in [0, 1]: the kept tests, the patch itself, the way to it.

What was submitted counts by bytes. ``reproduced`` and ``tested`` judge calls by how they look, so an agent can earn
them without meaning it: give them small weights, or a gate.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Literal

from forkgym.envs.base import Call, Evidence
from forkgym.tasks.base import FileChange
from forkgym.tasks.errors import GradingError
from forkgym.tasks.grading import fidelity

_TEST = re.compile(
    r"\b(pytest|unittest|nosetests|tox|nox|ctest|jest|vitest|mocha|go test|cargo (nextest|test)|node --test|"
    r"(npm|pnpm|yarn)( run)? test|make (test|check))\b"
)
_RUN = re.compile(r"(^|[;&|(\s])(python3?|node|ruby|perl|bash|sh|\./\S+|go run|cargo run|make)(\s|$)")
_WRITE = re.compile(
    r"(^|[^0-9&<>])>>?\s*[^&\s]|\bsed\s+(-\w+\s+)*-i|\btee\b|\bpatch\b|\bgit (apply|checkout|restore|stash|reset)\b|"
    r"\b(rm|mv|cp)\s"
)


def applies(evidence: Evidence) -> float:
    """1.0 if there is a submission that can be applied: neither empty nor malformed."""
    return float(not evidence.submission.empty and not evidence.submission.malformed)


def fixed(evidence: Evidence) -> float:
    """The share that passes of the hidden tests that fail without a solution (fail to pass)."""
    return _share(evidence, before="failed")


def kept(evidence: Evidence) -> float:
    """The share that still passes of the hidden tests that pass without a solution (pass to pass)."""
    return _share(evidence, before="passed")


def minimal(evidence: Evidence) -> float:
    """Changed lines of the reference solution over those of the submission, at most 1.0; nothing changed gives 0.0.

    A changed line counts once if it was removed and once if it was added; a file that is no text in the task or in its
    reference solution counts as one line, and any other by its lines.
    Raises ``GradingError`` for a task without a reference solution.
    """
    task, submission = evidence.task, evidence.submission
    if not task.oracle:
        raise GradingError(f"{task.id}: the reward 'minimal' needs a reference solution, and this task has none")
    if not applies(evidence):
        return 0.0

    def distance(path: str, data: bytes | None) -> int:
        before = task.files.get(path)
        binary = b"\0" in (before or b"") or b"\0" in (task.oracle.get(path) or b"")
        return int(before != data) if binary else _distance(before, data)

    gold = sum(distance(path, data) for path, data in task.oracle.items())
    mine = sum(distance(path, _content(change)) for path, change in submission.changes.items())
    return min(1.0, gold / mine) if mine else 1.0


def faithful(evidence: Evidence) -> float:
    """1.0 for a repair as small and as simple as the reference solution, less for tokens and branches beyond it.

    See ``forkgym.tasks.grading.fidelity``. Nothing changed gives 0.0. Raises ``GradingError`` as ``minimal`` does.
    """
    task, submission = evidence.task, evidence.submission
    if not task.oracle:
        raise GradingError(f"{task.id}: the reward 'faithful' needs a reference solution, and this task has none")
    return fidelity.faithful(task, submission) if applies(evidence) else 0.0


def focused(evidence: Evidence) -> float:
    """The share of the changed files that the reference solution changes too; nothing changed gives 0.0."""
    if not applies(evidence):
        return 0.0
    changed = evidence.submission.changes
    return sum(path in evidence.task.oracle for path in changed) / len(changed)


def reproduced(evidence: Evidence) -> float:
    """1.0 if a command that runs code or tests came before the first call that writes."""
    return float(any(_is_test(call) or _is_run(call) for call in _before_first_write(evidence.calls)))


def tested(evidence: Evidence) -> float:
    """1.0 if a test runner was started after the last call that writes, and there was such a call."""
    writes = [index for index, call in enumerate(evidence.calls) if _is_write(call)]
    return float(bool(writes) and any(_is_test(call) for call in evidence.calls[writes[-1] + 1 :]))


def _share(evidence: Evidence, before: Literal["failed", "passed"]) -> float:
    """By the task's proof, which says how each hidden test ends where nothing was done. Without such tests: 1.0."""
    broken = evidence.task.proof.get("fail_to_pass")
    if broken is None:
        raise GradingError(
            f"{evidence.task.id}: the rewards 'fixed' and 'kept' need a proof that names the fail-to-pass tests; "
            "forkgym tasks verify --write makes one"
        )
    if evidence.verdict.hacks or evidence.verdict.disproved:
        return 0.0
    found = [finding.passed for finding in evidence.verdict.findings if (finding.id in broken) == (before == "failed")]
    return sum(found) / len(found) if found else 1.0


def _content(change: FileChange) -> bytes | None:
    return change.data if change.link is None else change.link.encode("utf-8", "surrogateescape")


def _distance(before: bytes | None, after: bytes | None) -> int:
    """Lines removed plus lines added."""
    if before == after:
        return 0
    old, new = (before or b"").splitlines(), (after or b"").splitlines()
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    same = sum(block.size for block in matcher.get_matching_blocks())
    return max(1, len(old) + len(new) - 2 * same)


def _before_first_write(calls: Iterable[Call]) -> Iterable[Call]:
    for call in calls:
        if _is_write(call):
            return
        yield call


def _command(call: Call) -> str:
    return str(call.arguments.get("command", "")) if call.tool == "bash" else ""


def _is_test(call: Call) -> bool:
    return bool(_TEST.search(_command(call)))


def _is_run(call: Call) -> bool:
    return bool(_RUN.search(_command(call)))


def _is_write(call: Call) -> bool:
    return call.tool == "edit" or bool(_WRITE.search(_command(call)))
