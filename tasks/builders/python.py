"""Python packages with a pytest suite, or with one of unittest, which pytest runs too."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from forkgym.sandboxes.base import Sandbox
from forkgym.tasks.builders import requirements
from forkgym.tasks.builders.history import UnfitCommit
from forkgym.tasks.builders.language import COLLECT_TIMEOUT, Environment, Files

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
    """See ``language.Project``."""

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
