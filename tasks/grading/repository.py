"""Hidden tests of a real repository, run by the tool that the repository uses.

The order is always: a clean sandbox, the base's own configuration read, the submission without what it may not bring,
hidden tests placed last, their hashes, one run in an environment of ours, every process killed, their hashes again,
the records. ``docs/grading.md`` says what this proves and what it cannot.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any, Literal

from forkgym.registry import unknown
from forkgym.sandboxes.base import ExecResult, Sandbox
from forkgym.sandboxes.errors import SandboxFileError
from forkgym.tasks import tree
from forkgym.tasks.base import FileChange, Submission, Task
from forkgym.tasks.errors import GradingError, TaskFormatError
from forkgym.tasks.grading.base import Record, Report
from forkgym.tasks.grading.screen import screen

MAX_OUTPUT = 32 << 20
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
COMMON_OPTIONS = ("test_paths", "protected")
_TAIL = 1500


@dataclass(frozen=True)
class Result:
    """What a tool says of one test. ``skipped`` stands for all that is neither a pass nor a failure.

    ``output`` is what a test that passed has printed, where the tool tells.
    """

    id: str
    status: Literal["passed", "failed", "skipped"]
    message: str = ""
    seconds: float = 0.0
    output: str = ""


@dataclass(frozen=True)
class Results:
    """All that a run left. ``agrees``: does the exit code fit the records? ``None``: it does if 0 means no failure."""

    found: Sequence[Result]
    agrees: bool | None = None
    missing: Mapping[str, str] = field(default_factory=dict[str, str])  # listed test to why it has no record
    hacks: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    broken: str = ""


@dataclass(frozen=True)
class Plan:
    """What to start. ``files`` are placed in the working directory after the submission, hidden tests and canaries.

    ``canaries`` are tests that must be recorded as failed. ``read`` makes sense of the ended run; every process of the
    sandbox is dead by then.
    """

    command: Sequence[str]
    read: Callable[[ExecResult], Results]
    files: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    stdin: bytes | None = None
    canaries: tuple[str, ...] = ()


@dataclass(frozen=True)
class Job:
    """What a plan is made from: a sandbox without the submission as yet. ``scratch`` is a fresh directory."""

    box: Sandbox
    task: Task
    kept: Mapping[str, FileChange]
    scratch: str
    token: str

    def base(self, path: str) -> bytes | None:
        """A file that a grader places, else one of the base repository; ``None`` if there is neither."""
        if path in self.task.hidden:
            return self.task.hidden[path]
        try:
            return self.box.read_file(f"{self.task.workdir}/{path}")
        except SandboxFileError:
            return None

    def option(self, name: str, kind: type[Any], default: Any) -> Any:
        """One option of the task, of this type. Raises ``TaskFormatError``."""
        value: Any = self.task.grading.options.get(name, default)
        wanted = {list: "list of texts", str: "text"}.get(kind, kind.__name__)
        if type(value) is not kind or (kind is list and not all(isinstance(item, str) for item in value)):
            raise TaskFormatError(f"{self.task.id}: grading.options.{name}: must be a {wanted}, not {value!r}")
        return value

    def require(self, *programs: str) -> None:
        """Raise ``GradingError`` unless the image has these programs; asked before the submission is there."""
        for program in programs:
            if not self.box.exec(("/bin/sh", "-c", 'command -v "$0"', program), env={"PATH": PATH}).ok:
                where = f"the image {self.task.image!r}"
                raise GradingError(f"{self.task.id}: {where} has no {program!r}, which its tests need; add it there")


@dataclass(frozen=True)
class Tool:
    """A runner of one kind of tests. ``configuration``: file patterns that are never taken from a submission.

    ``manifests`` (what is built) are taken only where the reference solution changes the same file. ``options`` are
    those of the tool; all understand ``test_paths`` (what counts as tests) and ``protected`` (more file patterns that
    are never taken from a submission). ``locate`` says in which files a listed test may stand: those of the base count
    as hidden files, too, where the task does not bring them.
    """

    plan: Callable[[Job], Plan]
    configuration: tuple[str, ...]
    locate: Callable[[str], Sequence[str]] = lambda test: ()
    manifests: tuple[str, ...] = ()
    options: tuple[str, ...] = ()

    def __call__(self, box: Sandbox, task: Task, submission: Submission) -> Report:
        """Run the listed tests. Raises ``GradingError``, ``TaskFormatError`` and ``SandboxError``."""
        known = [*self.options, *COMMON_OPTIONS]
        for name in task.grading.options:
            if name not in known:
                raise TaskFormatError(f"{task.id}: grading.options: {unknown('option', name, known)}")
        token = secrets.token_hex(8)
        job = Job(box, task, submission.changes, f"/tmp/{token}", token)
        files = dict.fromkeys(path for test in task.grading.tests for path in self.locate(test))
        brought = {path: data for path in files if (data := job.base(path)) is not None}
        task = replace(task, hidden={**brought, **task.hidden})
        roots = job.option("test_paths", list, []) if "test_paths" in task.grading.options else None
        never = (*self.configuration, *job.option("protected", list, []))
        kept, dropped = screen(submission, task.hidden, never, self.manifests, roots, task.oracle)
        if not box.exec(("/bin/mkdir", job.scratch), cwd="/").ok:
            raise GradingError(f"{task.id}: cannot make {job.scratch} in the sandbox")
        job = replace(job, task=task, kept=kept.changes)
        return replace(_run(job, self.plan(job)), dropped=dropped)


def _run(job: Job, plan: Plan) -> Report:
    task, box = job.task, job.box
    placed = {**task.hidden, **plan.files}
    ours = {path: FileChange(data) for path, data in placed.items()}
    tree.write(box, task.workdir, {**job.kept, **ours})
    _forget_bytecode(job, [*job.kept, *placed])
    if wrong := _differing(job, placed):
        raise GradingError(f"{task.id}: {wrong[0]} is not what was placed there a moment ago")
    ended = box.exec(
        plan.command,
        cwd=task.workdir,
        env={"PATH": PATH, "CI": "true", "PYTHONHASHSEED": "0", **plan.env},
        stdin=plan.stdin,
        timeout=task.grading.timeout,
        max_output=MAX_OUTPUT,
    )
    changed = _differing(job, placed, "kill -9 -1; ")
    hacks = tuple(f"the hidden file {path} was changed while the tests ran" for path in changed)
    report = _decide(task, plan, ended, plan.read(ended))
    return replace(report, hacks=tuple(dict.fromkeys((*report.hacks, *hacks))))


def _decide(task: Task, plan: Plan, ended: ExecResult, results: Results) -> Report:
    """Records of the listed tests, and whether they can be believed."""
    counts = Counter(result.id for result in results.found)
    last = {result.id: result for result in results.found}
    records = {test: Record(False, why) for test, why in results.missing.items()}
    for test in task.grading.tests:
        if counts[test] > 1:
            records[test] = Record(False, f"recorded {counts[test]} times")
        elif test in last:
            records[test] = _record(last[test])
    hacks = list(results.hacks)
    hacks += [
        "a test that must fail passed" for name in plan.canaries if name in last and last[name].status == "passed"
    ]
    return Report(
        records,
        timed_out=ended.timed_out,
        hacks=tuple(dict.fromkeys(hacks)),
        broken=results.broken or _broken(task, plan, ended, results, last),
        notes=results.notes,
    )


def _record(result: Result) -> Record:
    message = result.message or ("skipped" if result.status == "skipped" else "")
    return Record(result.status == "passed", message, result.seconds)


def _broken(task: Task, plan: Plan, ended: ExecResult, results: Results, last: Mapping[str, Result]) -> str:
    """Why the run as a whole proves nothing; empty if it does."""
    if ended.timed_out:
        return ""
    if ended.oom_killed:
        return "the tests ran out of memory"
    if ended.exit_code < 0:
        return f"the test run was killed by signal {-ended.exit_code}"
    if ended.truncated:
        return f"the test run printed {ended.total_bytes} bytes; at most {MAX_OUTPUT} are read"
    failed = any(result.status == "failed" for result in results.found)
    agrees = results.agrees if results.agrees is not None else (ended.exit_code != 0) == failed
    if not agrees:
        return f"exit code {ended.exit_code} contradicts the records{tail(ended.stderr)}"
    if any(name not in last for name in plan.canaries) and all(test in last for test in task.grading.tests):
        return "the test that must fail was not run"
    return ""


def tail(printed: bytes) -> str:
    """The end of what a run printed, to explain it; begins with a colon unless there is nothing."""
    text = printed.strip().decode(errors="replace")[-_TAIL:]
    return f": {text}" if text else ""


def scratch_file(job: Job, name: str) -> bytes | None:
    """A file that the run left in its fresh directory; ``None`` if there is none, or more than ``MAX_OUTPUT`` bytes."""
    with contextlib.suppress(SandboxFileError):
        return job.box.read_file(f"{job.scratch}/{name}", max_bytes=MAX_OUTPUT)
    return None


def _forget_bytecode(job: Job, paths: Sequence[str]) -> None:
    """Python takes old bytecode for current if its source has the size and the second that it was made from."""
    sources = [PurePosixPath(job.task.workdir, path) for path in paths if path.endswith(".py")]
    stems = [str(source.parent / "__pycache__" / source.stem) for source in sources]
    if stems:
        job.box.exec(("/bin/sh", "-c", 'for stem; do rm -f -- "$stem".*.pyc; done', "sh", *stems), cwd="/")


def _differing(job: Job, placed: Mapping[str, bytes], first: str = "") -> list[str]:
    """Which placed files do not hold what was placed, by their SHA-256; ``first`` is a command to run before."""
    wanted = {path: hashlib.sha256(data).hexdigest() for path, data in placed.items()}
    command = (
        "/bin/sh",
        "-c",
        first + 'exec /usr/bin/sha256sum --zero -- "$@"',
        "sh",
        *(f"./{path}" for path in wanted),
    )
    result = job.box.exec(command, cwd=job.task.workdir, env={"PATH": PATH}, max_output=None)
    found = set(result.stdout.split(b"\0"))
    return [path for path, digest in wanted.items() if os.fsencode(f"{digest}  ./{path}") not in found]
