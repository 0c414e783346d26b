"""What differs by language: which files are tests, what must be installed, and which tests a file holds."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, Protocol

from forkgym.sandboxes.base import Sandbox
from forkgym.tasks.base import FileChange
from forkgym.tasks.builders import requirements
from forkgym.tasks.builders.history import UnfitCommit
from forkgym.tasks.grading.results import SEPARATOR

Files = Mapping[str, FileChange]
COLLECT_TIMEOUT = 120.0
_DOCUMENTS = (".md", ".rst", ".txt", ".adoc")


@dataclass(frozen=True)
class Environment:
    """What tests need: steps of an image's recipe (none: the machine's own system), and commands run at set-up.

    ``options`` are the runner's.
    """

    steps: tuple[Mapping[str, Any], ...] = ()
    commands: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])


class Project(Protocol):
    """How repositories of one language are tested."""

    language: str
    runner: str

    def owns(self, files: Files) -> bool:
        """True if the repository is of this kind."""
        ...

    def is_test(self, path: str) -> bool:
        """True for tests and what only they use."""
        ...

    def is_source(self, path: str) -> bool:
        """True for what a fix must change; asked only of what is no test."""
        ...

    def runnable(self, path: str) -> bool:
        """True for a test file that the runner can be asked for."""
        ...

    def environments(self, files: Files, version: str) -> Iterator[Environment]:
        """What to try, best first. ``version`` is the last release before. Raises ``UnfitCommit``."""
        ...

    def collect(self, box: Sandbox, workdir: str, paths: Sequence[str]) -> list[str]:
        """The ids of the tests in these files, in a sandbox where they stand. Raises ``UnfitCommit``."""
        ...


def is_document(path: str) -> bool:
    """True for what no test runs: it is part neither of what is asked nor of how it is judged."""
    top = path.split("/")[0].lower()
    return top in ("doc", "docs", ".github", "releasenotes", "changelog.d") or (
        "/" not in path and (path.lower().endswith(_DOCUMENTS) or path.startswith("."))
    )


# pip puts an editable install of the work directory here, at set-up and as the agent's user.
_SITE = "/opt/site"
_OPEN_SITE = (
    f"install -d -m 0777 {_SITE} && "
    "echo 'import site; site.addsitedir(\"/opt/site\")' > "
    '"$(python3 -c \'import sysconfig; print(sysconfig.get_path("purelib"))\')/forkgym-site.pth"'
)
# These load the project's own code before pytest runs, if the project is one of them.
_RUNNER_NEEDS = frozenset({"iniconfig", "packaging", "pluggy", "pygments", "pytest", "pip", "setuptools"})
_COLLECT = """
import json, os, sys
sys.path.insert(0, os.getcwd())
import pytest
class Plugin:
    ids, problems = [], []
    def pytest_collection_finish(self, session): self.ids = [item.nodeid for item in session.items]
    def pytest_collectreport(self, report):
        if report.failed: self.problems.append(str(report.longrepr)[-500:])
plugin, out = Plugin(), os.dup(1)
os.dup2(2, 1)
options = ["--collect-only", "-q", "-p", "no:cacheprovider", "--rootdir", os.getcwd()]
pytest.main([*options, *sys.argv[1:]], plugins=[plugin])
os.write(out, json.dumps([plugin.ids, plugin.problems]).encode())
os._exit(0)
"""


class Python:
    """Packages with a pytest suite, or with one of unittest, which pytest runs too."""

    language, runner = "Python", "pytest"

    def owns(self, files: Files) -> bool:
        return any(path.endswith(".py") for path in files)

    def is_test(self, path: str) -> bool:
        *folders, name = path.split("/")
        return bool({"test", "tests"} & set(folders)) or name in ("conftest.py",) or self._named(name)

    def is_source(self, path: str) -> bool:
        return path.endswith(".py") and path not in ("setup.py", "noxfile.py", "tasks.py")

    def runnable(self, path: str) -> bool:
        name = path.rpartition("/")[2]
        return name.endswith(".py") and name not in ("conftest.py", "__init__.py") and self.is_test(path)

    def environments(self, files: Files, version: str) -> Iterator[Environment]:
        name = requirements.project_name(files)
        if name in _RUNNER_NEEDS:
            raise UnfitCommit("part of the test runner", f"{name} is needed by pytest or pip themselves")
        wanted = requirements.test_requirements(files)
        backend = requirements.backend_requirements(files) if requirements.installable(files) else []
        options: dict[str, Any] = {"path": ["src", "."]} if any(path.startswith("src/") for path in files) else {}
        if any(item.startswith("pytest-cov") for item in wanted):
            options["arguments"] = ["--no-cov"]
        for packages in (wanted, requirements.unpinned(wanted)):
            steps: list[Mapping[str, Any]] = [{"pip": sorted({*packages, *backend, "pip"})}, {"run": _OPEN_SITE}]
            if name:  # a later release of the project itself, which one of these may need
                steps.append({"run": f"python3 -m pip uninstall --yes --quiet {name} || true"})
            yield Environment(tuple(steps), (_install(version),) if backend else (), options)

    def collect(self, box: Sandbox, workdir: str, paths: Sequence[str]) -> list[str]:
        result = box.exec(("python3", "-s", "-B", "-c", _COLLECT, *paths), cwd=workdir, timeout=COLLECT_TIMEOUT)
        try:
            ids, problems = json.loads(result.stdout)
        except ValueError:
            raise UnfitCommit("tests not collected", result.stderr.decode(errors="replace")[-500:]) from None
        if not ids:
            raise UnfitCommit("tests not collected", problems[0] if problems else "the test files hold no test")
        return list(dict.fromkeys(ids))

    def _named(self, name: str) -> bool:
        return name.startswith("test_") or name.endswith("_test.py") or name in ("test.py", "tests.py")


def _install(version: str) -> str:
    """Offline, without a build sandbox of pip's own: the image holds the build backend."""
    return (
        f"SETUPTOOLS_SCM_PRETEND_VERSION={version} PIP_DISABLE_PIP_VERSION_CHECK=1 python3 -m pip install --quiet "
        f"--no-index --no-build-isolation --no-deps --target {_SITE} --editable ."
    )


class Go:
    """Modules that need no other module: nothing is fetched for them, and the image must have Go."""

    language, runner = "Go", "go test"

    def owns(self, files: Files) -> bool:
        return "go.mod" in files

    def is_test(self, path: str) -> bool:
        return path.endswith("_test.go") or "testdata" in path.split("/")[:-1]

    def is_source(self, path: str) -> bool:
        return path.endswith(".go")

    def runnable(self, path: str) -> bool:
        return path.endswith("_test.go") and "testdata" not in path.split("/")

    def environments(self, files: Files, version: str) -> Iterator[Environment]:
        if re.search(r"^require\b", (files["go.mod"].data or b"").decode(errors="replace"), re.MULTILINE):
            raise UnfitCommit("environment cannot be built", "go.mod requires other modules, and those are not fetched")
        yield Environment()

    def collect(self, box: Sandbox, workdir: str, paths: Sequence[str]) -> list[str]:
        packages = sorted({f"./{path.rpartition('/')[0]}" for path in paths})
        command = ("go", "test", "-json", "-count=1", *packages)
        result = box.exec(command, cwd=workdir, env=_GO, timeout=2 * COLLECT_TIMEOUT, max_output=None)
        found: dict[str, None] = {}
        for line in result.stdout.splitlines():
            event: dict[str, Any] = json.loads(line) if line.startswith(b"{") else {}
            if "Test" in event and event.get("Action") in ("pass", "fail", "skip"):
                found[f"{event['Package']}::{event['Test']}"] = None
        if not found:
            problem = (result.stderr.strip() or result.stdout.strip()).decode(errors="replace")[-500:]
            raise UnfitCommit("tests not collected", problem)
        return list(found)


class Node:
    """Packages without dependencies whose tests use ``node:test``; the image must have Node.js."""

    language, runner = "JavaScript", "node:test"
    _SUFFIXES = (".js", ".mjs", ".cjs")

    def owns(self, files: Files) -> bool:
        return "package.json" in files

    def is_test(self, path: str) -> bool:
        *folders, name = path.split("/")
        return bool({"test", "tests", "__tests__"} & set(folders)) or self._named(name)

    def is_source(self, path: str) -> bool:
        return path.endswith(self._SUFFIXES) and ".config." not in path

    def runnable(self, path: str) -> bool:
        return path.endswith(self._SUFFIXES) and self._named(path.rpartition("/")[2])

    def environments(self, files: Files, version: str) -> Iterator[Environment]:
        if not any(b"node:test" in (item.data or b"") for path, item in files.items() if self.runnable(path)):
            raise UnfitCommit(
                "environment cannot be built", "no test uses node:test, and other runners are not fetched"
            )
        try:
            needed = json.loads(files["package.json"].data or b"{}").get("dependencies")
        except (ValueError, AttributeError):
            raise UnfitCommit("environment cannot be built", "package.json cannot be read") from None
        if needed:
            raise UnfitCommit("environment cannot be built", "package.json has dependencies, and those are not fetched")
        yield Environment()

    def collect(self, box: Sandbox, workdir: str, paths: Sequence[str]) -> list[str]:
        place = "/tmp/reporter.mjs"
        box.write_file(place, (resources.files("forkgym.tasks.grading.guest") / "reporter.mjs").read_bytes())
        options = ("--test", f"--test-reporter={place}", "--test-reporter-destination=stdout")
        result = box.exec(("node", *options, *paths), cwd=workdir, timeout=2 * COLLECT_TIMEOUT, max_output=None)
        events = [json.loads(line) for line in result.stdout.splitlines() if line.startswith(b"{")]
        tests = [event for event in events if "path" in event]
        ids = [SEPARATOR.join([_below(event["file"], workdir), *event["path"]]) for event in tests]
        if not ids:
            problem = (result.stderr.strip() or result.stdout.strip()).decode(errors="replace")[-500:]
            raise UnfitCommit("tests not collected", problem)
        return [test for test in dict.fromkeys(ids) if ids.count(test) == 1]

    def _named(self, name: str) -> bool:
        return bool(re.search(r"(^|[.\-_])(test|spec)([.\-_].*)?\.[cm]?js$", name))


def _below(file: str, folder: str) -> str:
    return file.removeprefix("file://").removeprefix(f"{folder}/")


_GO = {"GOFLAGS": "", "GOPROXY": "off", "GOWORK": "off", "GOTOOLCHAIN": "local"}
PROJECTS: tuple[Project, ...] = (Go(), Node(), Python())


def project_of(files: Files) -> Project:
    """The kind of project that the tree is; of several, the one with the most sources. Raises ``UnfitCommit``."""
    owners = [project for project in PROJECTS if project.owns(files)]
    if owners:
        return max(owners, key=lambda project: sum(map(project.is_source, files)))
    known = ", ".join(project.language for project in PROJECTS)
    raise UnfitCommit("language not supported", f"known: {known}")
