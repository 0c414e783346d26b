"""What only a critic or a teacher may see about a state. It never reaches an observation."""

from __future__ import annotations

import difflib
import re
from typing import Any

from forkgym.tasks.base import Submission, Task, Verdict

_TOKEN = re.compile(rb"\w+|\s|[^\w\s]")


def describe(task: Task, submission: Submission, verdict: Verdict) -> dict[str, Any]:
    """The hidden status of a state, as plain values.

    - ``passed``, ``failed``: ids of the hidden tests by their result now; ``fraction``: passed / all, 0.0 without any
    - ``score``, ``resolved``, ``stage``: the verdict if the agent submitted now
    - ``files_changed``: number of paths that differ from the start
    - ``gold_distance``: 0 where every file that the solution or the agent touched reads as in the solution, 1 where
      they share nothing, ``None`` where the solution is a program; see ``gold_distance``
    """
    passed = [finding.id for finding in verdict.findings if finding.passed]
    failed = [finding.id for finding in verdict.findings if not finding.passed]
    return {
        "passed": passed,
        "failed": failed,
        "fraction": len(passed) / len(verdict.findings) if verdict.findings else 0.0,
        "score": verdict.score,
        "resolved": verdict.resolved,
        "stage": verdict.stage,
        "files_changed": len(submission.changes),
        "gold_distance": None if task.solve else gold_distance(task, submission),
    }


def gold_distance(task: Task, submission: Submission) -> float:
    """1 - 2 M / T over the tokens (words, single blanks, single signs) of the files that either side touched.

    M counts matching tokens and T the tokens of both versions: the complement of ``difflib``'s ratio, pooled over
    files. Two empty sides are at distance 0.
    """
    matched = total = 0
    for path in sorted(set(task.oracle) | set(submission.changes)):
        base = task.files.get(path, b"")
        gold = task.oracle.get(path, base) or b""
        change = submission.changes.get(path)
        mine = base if change is None else change.data or (change.link or "").encode()
        first, second = _TOKEN.findall(mine), _TOKEN.findall(gold)
        total += len(first) + len(second)
        matcher = difflib.SequenceMatcher(None, first, second, autojunk=False)
        matched += sum(block.size for block in matcher.get_matching_blocks())
    return 1.0 - 2.0 * matched / total if total else 0.0
