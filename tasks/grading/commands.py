"""The runner ``command``: any command that leaves JUnit XML or TAP.

Options: ``command`` (for bash, in the working directory), ``format`` (``junit`` or ``tap``) and ``report`` (a file, or
a directory of ``*.xml`` files, relative to the working directory; by default the file that the variable
``FORKGYM_REPORT`` names). Name what the command itself reads, such as a Makefile, in ``protected`` or in ``hidden/``.
Ids are ``classname::name`` for JUnit and ``subtest > description`` for TAP.
"""

from __future__ import annotations

from forkgym.sandboxes.base import ExecResult
from forkgym.sandboxes.errors import SandboxFileError
from forkgym.tasks.errors import TaskFormatError
from forkgym.tasks.grading import results
from forkgym.tasks.grading.pytests import PYTEST
from forkgym.tasks.grading.repository import MAX_OUTPUT, Job, Plan, Results, Tool, tail

_MAX_REPORTS = 10_000


def plan(job: Job) -> Plan:
    """Run the command, and find its report where it was told to leave it."""
    command = job.option("command", str, "")
    form = job.option("format", str, "junit")
    if not command:
        raise TaskFormatError(f"{job.task.id}: grading.options.command: is missing")
    if form not in ("junit", "tap"):
        raise TaskFormatError(f"{job.task.id}: grading.options.format: must be junit or tap, not {form!r}")
    place = f"{job.scratch}/report"
    if report := job.option("report", str, ""):
        place = f"{job.task.workdir}/{report}"
        job.box.exec(("/bin/rm", "-rf", "--", place), cwd="/")  # one that the base holds tells nothing of this run
    return Plan(
        ("/bin/bash", "-c", command),
        lambda ended: read(job, ended, place, form),
        env={"FORKGYM_REPORT": place},
    )


def read(job: Job, ended: ExecResult, place: str, form: str) -> Results:
    """The records in the report. None, or one that cannot be read, proves nothing."""
    try:
        documents = _documents(job, place)
        if not documents:
            return Results((), broken="" if ended.timed_out else f"the command left no report{tail(ended.stderr)}")
        if form == "tap":
            found = [result for data in documents for result in results.tap(data.decode("utf-8", "replace"))]
        else:
            found = [result for data in documents for result in results.junit(data)]
    except results.UnreadableError as error:
        return Results((), broken="" if ended.timed_out else f"the report is unreadable: {error}")
    return Results(found)


def _documents(job: Job, place: str) -> list[bytes]:
    try:
        return [job.box.read_file(place, max_bytes=MAX_OUTPUT)]
    except SandboxFileError:
        pass
    try:
        names = [entry.name for entry in job.box.list_dir(place) if entry.name.endswith(".xml")]
        if len(names) > _MAX_REPORTS:
            raise results.UnreadableError(f"{len(names)} files; at most {_MAX_REPORTS} are read")
        return [job.box.read_file(f"{place}/{name}", max_bytes=MAX_OUTPUT) for name in names]
    except SandboxFileError:
        return []


COMMAND = Tool(plan, configuration=PYTEST.configuration, options=("command", "format", "report"))
