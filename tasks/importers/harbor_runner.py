"""The runner ``harbor``: ``tests/test.sh`` in a clean sandbox, and the reward that it writes below /logs/verifier.

Options: ``env`` (for the script) and ``artifacts`` (paths; only changes there reach the tests, as where Harbor runs
them in an environment of their own). A reward in [0, 1] is the score, and 1 is resolved. A script that leaves no such
reward proves nothing, which scores 0: what was submitted may have ended it.
"""

from __future__ import annotations

import errno
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from forkgym.sandboxes.base import Sandbox
from forkgym.sandboxes.errors import SandboxFileError
from forkgym.tasks.base import Submission, Task
from forkgym.tasks.errors import GradingError, TaskFormatError
from forkgym.tasks.grading.base import Record, Report
from forkgym.tasks.solution import place
from forkgym.tasks.submission import apply

TESTS = ".harbor-tests"  # where a task's hidden files keep those of tests/
TEST = "reward"  # the id of the one graded item
LOGS = "/logs/verifier"
MAX_REWARD = 1 << 16
_OPTIONS = ("env", "artifacts")
_COMMAND = (
    f"mkdir -p /logs/agent /logs/artifacts && chmod +x /tests/test.sh && (/tests/test.sh) >{LOGS}/test-stdout.txt 2>&1"
)


class _NoRewardError(Exception):
    """The script left no reward that makes sense."""


def run(box: Sandbox, task: Task, submission: Submission) -> Report:
    """Apply the submission, run the script, read the reward. Raises ``GradingError`` and ``SandboxError``."""
    options = _options(task)
    kept, dropped = _shown(submission, task.workdir, options.get("artifacts"))
    apply(box, kept, task.workdir)
    prefix = f"{TESTS}/"
    tests = {path.removeprefix(prefix): data for path, data in task.hidden.items() if path.startswith(prefix)}
    if "test.sh" not in tests:
        raise GradingError(f"{task.id}: has no tests/test.sh")
    place(box, "/tests", tests)
    place(box, LOGS, {})
    result = box.exec(_COMMAND, cwd=task.workdir, env=options.get("env"), timeout=task.grading.timeout)
    if result.timed_out:
        return Report({}, timed_out=True, dropped=dropped)
    with box.fork(1)[0] as quiet:  # nothing runs there that could write the reward anew
        try:
            rewards = _rewards(quiet)
        except _NoRewardError as error:
            tail = _tail(quiet)
            return Report({}, broken=f"{error} (tests/test.sh: exit code {result.exit_code}){tail}", dropped=dropped)
    score = rewards[TEST]
    return Report({TEST: Record(score == 1.0, f"reward {score:g}")}, dropped=dropped, score=score, components=rewards)


def _options(task: Task) -> dict[str, Any]:
    if unknown := sorted(set(task.grading.options) - set(_OPTIONS)):
        raise TaskFormatError(f"{task.id}: grading.options: unknown key {unknown[0]!r}; known: {', '.join(_OPTIONS)}")
    return dict(task.grading.options)


def _shown(submission: Submission, workdir: str, artifacts: Sequence[str] | None) -> tuple[Submission, dict[str, str]]:
    """What of a submission the tests may see, and the reason for each path that they may not."""
    if artifacts is None:
        return submission, {}
    roots = [path.rstrip("/") for path in artifacts]
    absolute = {path: f"{workdir}/{path}" for path in submission.changes}
    kept = {path for path, whole in absolute.items() if any(whole == r or whole.startswith(f"{r}/") for r in roots)}
    changes = {path: change for path, change in submission.changes.items() if path in kept}
    dropped = {path: "below no artifact of the task" for path in submission.changes if path not in kept}
    return replace(submission, changes=changes), dropped


def _rewards(box: Sandbox) -> dict[str, float]:
    """Named rewards; ``reward`` is among them. The JSON file comes first, as in Harbor. Raises ``_NoRewardError``."""
    whole = _read(box, "reward.json")
    if whole is not None:
        try:
            value: Any = json.loads(whole)
        except (ValueError, RecursionError) as error:
            raise _NoRewardError("reward.json is not JSON") from error
        named: dict[str, Any] = value if isinstance(value, dict) else {TEST: value}  # pyright: ignore
    else:
        text = _read(box, "reward.txt")
        if text is None:
            raise _NoRewardError("no reward was written")
        try:
            named = {TEST: float(text)}
        except ValueError as error:
            raise _NoRewardError(f"reward.txt holds no number: {text[:40]!r}") from error
    if TEST not in named and len(named) == 1:
        named = {TEST: next(iter(named.values()))} | named
    if TEST not in named:
        names = ", ".join(map(repr, list(named)[:5])) or "none"
        raise _NoRewardError(f"reward.json does not name {TEST!r}, but {names}")
    for name, value in named.items():
        if not isinstance(value, int | float) or not math.isfinite(value):
            raise _NoRewardError(f"reward {name!r} is {value!r:.40}, no finite number")
    if not 0 <= named[TEST] <= 1:
        raise _NoRewardError(f"the reward is {named[TEST]:g}, and a score lies in [0, 1]")
    return {str(name): float(value) for name, value in named.items()}


def _read(box: Sandbox, name: str) -> str | None:
    try:
        data = box.read_file(f"{LOGS}/{name}", max_bytes=MAX_REWARD + 1)
    except SandboxFileError as error:
        if error.errno == errno.ENOENT:
            return None
        raise _NoRewardError(f"{name} cannot be read: {error.strerror}") from error
    if len(data) > MAX_REWARD:
        raise _NoRewardError(f"{name} holds more than {MAX_REWARD} bytes")
    return data.decode("utf-8", "replace")


def _tail(box: Sandbox) -> str:
    try:
        text = box.read_file(f"{LOGS}/test-stdout.txt", max_bytes=64 << 20)[-1000:].decode("utf-8", "replace").strip()
    except SandboxFileError:
        return ""
    return f": {text}" if text else ""
