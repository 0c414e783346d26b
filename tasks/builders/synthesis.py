"""Synthetic tasks: mistakes put into working code, kept if its own tests notice them.

    report = synthesize("path/or/url", Path("more"), backend("local"), SynthOptions(limit=20))

The patch that mends a mistake is known and minimal. Tests that notice it become hidden tests, and their files are
taken from what the agent sees. A mistake that no test notices is dropped, and so is one that tests cannot tell from
another in the same file. With ``combine`` a task holds several mistakes, each of which tests notice by itself.
"""

from __future__ import annotations

import hashlib
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from forkgym.registry import unknown
from forkgym.sandboxes.base import Backend
from forkgym.tasks.base import FileChange, Submission, Task
from forkgym.tasks.builders import history, instruction, measure, mutation, start, syntax, taskfolder
from forkgym.tasks.builders.environments import Environments
from forkgym.tasks.builders.history import UnfitCommit
from forkgym.tasks.builders.instruction import Failure
from forkgym.tasks.builders.language import Project, is_document
from forkgym.tasks.builders.ledger import CLONE, PLACE, Decision, Ledger, refuse_foreign
from forkgym.tasks.builders.syntax import Change
from forkgym.tasks.errors import BuildError
from forkgym.tasks.submission import of_files
from forkgym.tasks.workspace import Bases

KINDS = ("mutation",)
# A mistake that breaks more than this share of the tests is found by importing the package.
MOST_BROKEN = 0.5
TRIES = 12
_CROWD = 20  # places of one kind and file are many: a sample of them is enough
INTRODUCTION = (
    "Something in this repository doesn't work as it should. Find it, and mend it with as small a change as you can."
)
_NO_SOURCES = ("setup.py", "conf.py", "conftest.py", "noxfile.py")


@dataclass(frozen=True)
class SynthOptions:
    """``combine``: mistakes in each task. ``limit`` tasks are made of at most ``TRIES`` times as many candidates."""

    kind: str = "mutation"
    limit: int = 20
    combine: int = 1
    seed: int = 0
    repeats: int = measure.REPEATS
    split: str = "train"
    image: str = "host"


@dataclass(frozen=True)
class Mistake:
    """One change of one file."""

    path: str
    change: Change

    @property
    def id(self) -> str:
        said = (self.path, self.change.start, self.change.end, self.change.new)
        return hashlib.sha256(repr(said).encode()).hexdigest()[:12]

    @property
    def title(self) -> str:
        return f"{self.change.kind}, {self.path}:{self.change.line}"


def synthesize(
    source: str,
    out: Path,
    backend: Backend,
    options: SynthOptions | None = None,
    progress: Callable[[Decision], None] | None = None,
) -> dict[str, Any]:
    """Make tasks of the repository's newest commit, below ``out``, and return the report.

    Interrupted, the same call goes on. Equal seeds try equal mistakes in equal order. Raises ``BuildError`` for what is
    no repository, has no tests, or has tests that fail already.
    """
    options = options or SynthOptions()
    if options.kind not in KINDS:
        raise BuildError(unknown("kind of synthetic task", options.kind, list(KINDS)))
    refuse_foreign(out)
    repo = history.open_repository(source, out / PLACE / CLONE)
    project, files = start.project_at_head(repo, source)
    if project.language != "Python":
        raise BuildError(f"{source}: mistakes are put into Python code, and this is {project.language}")
    name = start.name_of(source)
    head = {"repository": name, "head": repo.head.commit.hexsha, "kind": options.kind, "combine": options.combine}
    head |= {"seed": options.seed, "split": options.split, "repeats": options.repeats, "image": options.image}
    bases = Bases(backend, keep=2)
    began = time.monotonic()
    try:
        with Ledger.open(out, head) as ledger:
            version = history.version_before(repo.head.commit)
            try:
                environment = Environments(name, out, options.image).first(project.environments(files, version))
                hidden = {path: item for path, item in files.items() if project.runnable(path) and item.data}
                whole = start.plain_task(
                    f"{name}/whole", files, hidden, {}, project, environment, options.split, f"{name} {head['head']}"
                )
                tests, seconds = measure.passing(whole, project, sorted(hidden), bases)
            except UnfitCommit as error:
                raise BuildError(f"{source}: {error}") from error
            workshop = _Workshop(whole, project, tests, seconds, ledger, bases, options)
            workshop.run(progress or (lambda decision: None))
            seconds = round(time.monotonic() - began, 1)
            return ledger.report(language=project.language, unmeasured=[], seconds=seconds)
    finally:
        bases.close()


class _Workshop:
    """``whole`` is the repository as it is; ``tests`` are those of its tests that pass, within ``seconds``."""

    def __init__(
        self,
        whole: Task,
        project: Project,
        tests: tuple[str, ...],
        seconds: float,
        ledger: Ledger,
        bases: Bases,
        options: SynthOptions,
    ) -> None:
        self._whole, self._project = whole, project
        # A mistake may make a loop endless.
        self._listed = replace(whole, grading=replace(whole.grading, tests=tests, timeout=round(10 + 5 * seconds)))
        self._ledger, self._bases, self._options = ledger, bases, options
        self._effects = {decision.detail for decision in ledger.kept}
        self._waiting: list[tuple[Mistake, dict[str, str]]] = []

    def run(self, progress: Callable[[Decision], None]) -> None:
        """Try mistake after mistake until there are enough tasks."""
        for tried, mistake in enumerate(self._mistakes()):
            if len(self._ledger.kept) >= self._options.limit or tried >= TRIES * self._options.limit:
                return
            if mistake.id in self._ledger.decided:
                continue
            began = time.monotonic()
            try:
                decision = self._decide(mistake)
            except UnfitCommit as error:
                decision = Decision(mistake.id, mistake.title, reason=error.reason, detail=error.detail)
            if decision is not None and decision.candidate not in self._ledger.decided:
                decision = replace(decision, seconds=round(time.monotonic() - began, 2))
                self._ledger.add(decision)
                progress(decision)

    def _mistakes(self) -> Iterator[Mistake]:
        """By turns one of each kind, in an order that depends on nothing but the seed."""
        draw = random.Random(self._options.seed)
        by_kind: dict[str, list[Mistake]] = defaultdict(list)
        for path in sorted(self._sources()):
            text = self._text(path)
            of_file: dict[str, list[Change]] = defaultdict(list)
            try:
                for change in (*syntax.propose(text), *mutation.token_changes(text)):
                    of_file[change.kind].append(change)
            except (SyntaxError, ValueError):
                continue
            for kind in sorted(of_file):
                some = draw.sample(of_file[kind], min(_CROWD, len(of_file[kind])))
                by_kind[kind] += [Mistake(path, change) for change in some]
        for mistakes in by_kind.values():
            draw.shuffle(mistakes)
        kinds = sorted(by_kind)
        draw.shuffle(kinds)
        while kinds:
            for kind in list(kinds):
                mistake = by_kind[kind].pop()
                kinds = [other for other in kinds if by_kind[other]]
                if syntax.differs(self._text(mistake.path), self._broken(mistake)):
                    yield mistake

    def _decide(self, mistake: Mistake) -> Decision | None:
        """What becomes of it; ``None`` if it waits for others to be combined with. Raises ``UnfitCommit``."""
        failed = self._failures(of_files({mistake.path: self._broken(mistake).encode()}))
        effect = hashlib.sha256(repr((mistake.path, sorted(failed.items()))).encode()).hexdigest()[:16]
        if effect in self._effects:
            raise UnfitCommit("same as another", f"{len(failed)} tests fail in the same way")
        self._effects.add(effect)
        if self._options.combine == 1:
            return Decision(mistake.id, mistake.title, self._keep(mistake.id, [mistake], failed), detail=effect)
        self._waiting.append((mistake, failed))
        if len(self._waiting) < self._options.combine:
            return None
        parts, self._waiting = self._waiting, []
        return self._combined(parts)

    def _combined(self, parts: list[tuple[Mistake, dict[str, str]]]) -> Decision:
        mistakes = [mistake for mistake, _ in parts]
        name = hashlib.sha256("".join(mistake.id for mistake in mistakes).encode()).hexdigest()[:12]
        title = "; ".join(mistake.title for mistake in mistakes)
        if name in self._ledger.decided:
            return Decision(name, title)
        try:
            together = self._failures(of_files({path: data.encode() for path, data in self._all(mistakes).items()}))
            for mistake, alone in parts:
                if not set(alone) <= set(together):
                    raise UnfitCommit("one mistake hides another", mistake.title)
            return Decision(name, title, self._keep(name, mistakes, together))
        except UnfitCommit as error:
            return Decision(name, title, reason=error.reason, detail=error.detail)

    def _failures(self, work: Submission) -> dict[str, str]:
        """Test to message, of those that notice the mistake. Raises ``UnfitCommit``."""
        verdict = measure.run(self._listed, self._whole, work, self._bases)
        failed = {finding.id: finding.message for finding in verdict.findings if not finding.passed}
        if not failed:
            raise UnfitCommit("no test notices", "equivalent, or not tested")
        if len(failed) > MOST_BROKEN * len(self._listed.grading.tests):
            raise UnfitCommit("breaks too much", f"{len(failed)} of {len(self._listed.grading.tests)} tests fail")
        return failed

    def _keep(self, name: str, mistakes: list[Mistake], failed: dict[str, str]) -> str:
        whole, listed = self._whole, self._listed.grading
        broken = {path: text.encode() for path, text in self._all(mistakes).items()}
        oracle = {path: whole.files[path] for path in broken}
        noticing = {test.partition("::")[0] for test in failed}
        hidden = {path: data for path, data in whole.hidden.items() if path in noticing}
        others = [test for test in listed.tests if test not in failed and test.partition("::")[0] in noticing]
        secrets = instruction.added_lines(_changes(broken), _changes(oracle))
        shown = instruction.symptoms([Failure(test, message) for test, message in failed.items()], secrets)
        task = replace(
            whole,
            id=f"{whole.id.removesuffix('/whole')}/{name}",
            instruction=f"{INTRODUCTION}\n\n{shown}".strip(),
            files={**{path: data for path, data in whole.files.items() if path not in hidden}, **broken},
            hidden=hidden,
            oracle=oracle,
            executables=tuple(path for path in whole.executables if path not in hidden),
            grading=replace(listed, tests=(*failed, *others), timeout=max(60.0, listed.timeout)),
            params={"mistakes": [mistake.change.kind for mistake in mistakes]},
        )
        task, proof = measure.settle(task, list(failed), self._bases, self._options.repeats)
        self._ledger.place(taskfolder.contents(task, proof), self._ledger.out / task.id)
        return task.id

    def _all(self, mistakes: list[Mistake]) -> dict[str, str]:
        """Path to text with all of its mistakes. Raises ``UnfitCommit`` if they overlap."""
        texts: dict[str, str] = {}
        last: dict[str, int] = {}
        for mistake in sorted(mistakes, key=lambda m: (m.path, -m.change.start)):
            path, change = mistake.path, mistake.change
            if change.end > last.get(path, change.end):
                raise UnfitCommit("mistakes overlap", mistake.title)
            texts[path] = change.apply(texts.get(path, self._text(path)))
            last[path] = change.start
        return texts

    def _sources(self) -> list[str]:
        project = self._project
        sources = [path for path in self._whole.files if project.is_source(path) and not project.is_test(path)]
        return [path for path in sources if not is_document(path) and path.rpartition("/")[2] not in _NO_SOURCES]

    def _broken(self, mistake: Mistake) -> str:
        return mistake.change.apply(self._text(mistake.path))

    def _text(self, path: str) -> str:
        return self._whole.files[path].decode()


def _changes(contents: Mapping[str, bytes]) -> dict[str, FileChange]:
    return {path: FileChange(data) for path, data in contents.items()}
