"""AutoBuilder: from the history of a repository to tasks that are proven.

    report = build_from_repo("path/or/url", Path("mytasks"), limit=20)

Of each commit that changes sources and tests together: the base is the tree before it with a history of one commit,
the hidden tests are its test files, the solution is the rest. A commit is kept if some tests fail before and pass
after, in each of several repeats, and if nothing in the sandbox tells the fix.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from git import Commit, Repo

from forkgym.sandboxes.base import Backend
from forkgym.sandboxes.errors import SandboxError
from forkgym.tasks.base import FileChange, Task
from forkgym.tasks.builders import history, instruction, measure, start, taskfolder
from forkgym.tasks.builders.environments import Environments
from forkgym.tasks.builders.history import Fix, UnfitCommit
from forkgym.tasks.builders.instruction import Rewriter
from forkgym.tasks.builders.language import Project, is_document
from forkgym.tasks.builders.ledger import CLONE, PLACE, REPORT, Decision, Ledger, refuse_foreign
from forkgym.tasks.errors import BuildError, GradingError, SetupError
from forkgym.tasks.workspace import Bases

MAX_SOURCES = 12
MAX_UNMEASURED = 5
MAX_ADDED_LINES = 600
# Reasons that say nothing about what the repository needs; and those for which no test could be run.
PASSED_OVER = (
    "first commit",
    "no source changed",
    "no test changed",
    "change too large",
    "changes links or permissions",
)
UNBUILDABLE = ("environment cannot be built", "set-up fails", "part of the test runner")
Progress = Callable[[Decision], None]


@dataclass(frozen=True)
class Options:
    """``limit``: most tasks; ``commits``: most commits looked at, newest first; ``split``: that of all tasks.

    ``image`` is what environments are built over: "host", this machine's own system, or an image such as "base".
    """

    limit: int = 20
    commits: int = 1000
    repeats: int = measure.REPEATS
    split: str = "train"
    image: str = "host"


def build_from_repo(
    source: str,
    out: Path,
    backend: Backend,
    options: Options | None = None,
    rewrite: Rewriter | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Build tasks below ``out`` and return the report, which also says why each commit was dropped.

    Interrupted, the same call goes on. ``rewrite`` turns a plain instruction into a better one. Raises ``BuildError``
    for what is no repository, one without tests, or a folder that holds something else: then nothing was written.
    """
    options = options or Options()
    refuse_foreign(out)
    repo = history.open_repository(source, out / PLACE / CLONE)
    name = start.name_of(source)
    project, _ = start.project_at_head(repo, source)
    head = {"repository": name, "head": repo.head.commit.hexsha, "split": options.split}
    head |= {"repeats": options.repeats, "image": options.image}
    bases = Bases(backend, keep=2)
    began = time.monotonic()
    try:
        with Ledger.open(out, head) as ledger:
            builder = _Builder(name, project, ledger, bases, options, rewrite)
            unmeasured = builder.run(repo, progress or (lambda decision: None))
            report = ledger.report(
                language=project.language, unmeasured=unmeasured, seconds=round(time.monotonic() - began, 1)
            )
    finally:
        bases.close()
    tried = [item for item in report["candidates"] if item["reason"] not in PASSED_OVER]
    if tried and all(item["reason"] in UNBUILDABLE for item in tried):
        raise BuildError(f"{source}: {tried[0]['reason']}: {tried[0]['detail']}; {out / REPORT} has all commits")
    return report


class _Builder:
    def __init__(
        self,
        name: str,
        project: Project,
        ledger: Ledger,
        bases: Bases,
        options: Options,
        rewrite: Rewriter | None,
    ) -> None:
        self._name, self._project, self._ledger = name, project, ledger
        self._bases, self._options, self._rewrite = bases, options, rewrite
        self._environments = Environments(name, ledger.out, options.image)

    def run(self, repo: Repo, progress: Progress) -> list[dict[str, str]]:
        """Decide commit after commit; returns those that the machine, and not the commit, kept from a decision."""
        unmeasured: list[dict[str, str]] = []
        for commit in history.commits(repo, self._options.commits):
            if len(self._ledger.kept) >= self._options.limit:
                break
            if commit.hexsha in self._ledger.decided:
                continue
            title = str(commit.summary)[:100]
            began = time.monotonic()
            try:
                decision = Decision(commit.hexsha, title, task=self._task(commit))
            except UnfitCommit as error:
                decision = Decision(commit.hexsha, title, reason=error.reason, detail=error.detail)
            except SetupError as error:
                decision = Decision(commit.hexsha, title, reason="set-up fails", detail=str(error)[-500:])
            except (GradingError, SandboxError) as error:
                unmeasured.append({"candidate": commit.hexsha, "title": title, "problem": str(error)[-500:]})
                if len(unmeasured) >= MAX_UNMEASURED:
                    raise
                continue
            decision = replace(decision, seconds=round(time.monotonic() - began, 2))
            self._ledger.add(decision)
            progress(decision)
        return unmeasured

    def _task(self, commit: Commit) -> str:
        tests, rest = _split(history.changed_paths(commit), self._project)
        runnable = [path for path in tests if self._project.runnable(path)]
        if not any(self._project.is_source(path) for path in rest):
            raise UnfitCommit("no source changed")
        if not runnable:
            raise UnfitCommit("no test changed")
        if len(rest) > MAX_SOURCES:
            raise UnfitCommit("change too large", f"{len(rest)} files that are no tests; at most {MAX_SOURCES}")
        fix = history.read(commit)
        solution = {path: fix.changed[path] for path in rest if path in fix.changed}
        hidden = {path: fix.changed[path] for path in tests if path in fix.changed}
        _check(fix, solution, hidden)
        runnable = [path for path in runnable if path in hidden and not hidden[path].deleted]
        if not runnable:
            raise UnfitCommit("no test changed", "test files only go")
        version = history.version_before(commit)
        environment = self._environments.first(self._project.environments(fix.after, version))
        task_id, source = f"{self._name}/{commit.hexsha[:10]}", f"{self._name} {commit.hexsha}"
        plain = start.plain_task(
            task_id, fix.before, hidden, solution, self._project, environment, self._options.split, source
        )
        return self._finish(plain, fix, solution, runnable)

    def _finish(self, plain: Task, fix: Fix, solution: dict[str, FileChange], runnable: list[str]) -> str:
        found = measure.find(plain, self._project, runnable, self._bases)
        told = instruction.write(fix.message, found.failures, fix.before, solution, self._rewrite)
        if told is None:
            raise UnfitCommit("no instruction without the fix")
        whole = replace(
            plain,
            instruction=told,
            grading=replace(
                plain.grading,
                tests=(*found.fail_to_pass, *found.pass_to_pass),
                timeout=float(max(60, round(10 * found.seconds))),
            ),
        )
        task, proof = measure.settle(whole, found.fail_to_pass, self._bases, self._options.repeats)
        folder = self._ledger.out / plain.id
        self._ledger.place(taskfolder.contents(task, proof), folder)
        return task.id


def _split(paths: list[str], project: Project) -> tuple[list[str], list[str]]:
    tests = [path for path in paths if project.is_test(path)]
    return tests, [path for path in paths if not project.is_test(path) and not is_document(path)]


def _check(fix: Fix, solution: dict[str, FileChange], hidden: dict[str, FileChange]) -> None:
    """Refuse what a solution of plain files cannot say."""
    for path, change in {**solution, **hidden}.items():
        old = fix.before.get(path)
        mode = old.mode if old and old.link is None else 0o644
        if change.link is not None or (old and old.link is not None) or (not change.deleted and change.mode != mode):
            raise UnfitCommit("changes links or permissions", path)
    added = instruction.added_lines(fix.before, solution)
    if len(added) > MAX_ADDED_LINES:
        raise UnfitCommit("change too large", f"{len(added)} new lines; at most {MAX_ADDED_LINES}")
