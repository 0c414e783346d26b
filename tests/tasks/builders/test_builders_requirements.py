"""What a Python project's tests need, from each of the places where projects say it."""

from __future__ import annotations

import pytest

from forkgym.tasks.base import FileChange
from forkgym.tasks.builders import requirements
from forkgym.tasks.builders.compiled import Go
from forkgym.tasks.builders.history import UnfitCommit
from forkgym.tasks.builders.language import is_document
from forkgym.tasks.builders.projects import project_of
from forkgym.tasks.builders.python import Python


def tree(**files: str) -> dict[str, FileChange]:
    names = {"pyproject": "pyproject.toml", "setup_py": "setup.py", "setup_cfg": "setup.cfg", "tox": "tox.ini"}
    return {names.get(name, name): FileChange(text.encode()) for name, text in files.items()}


def needs(**files: str) -> list[str]:
    return requirements.test_requirements(tree(**files))


def test_pyproject_with_extras_and_groups() -> None:
    text = """
[project]
name = "Some_Thing"
dependencies = ["attrs>=20", "tomli; python_version < '3.0'", "mypy"]
[project.optional-dependencies]
tests = ["freezegun==1.0", "sphinx"]
docs = ["furo"]
[dependency-groups]
test = ["hypothesis[cli]>=6", {include-group = "docs"}]
dev = ["never"]
[tool.pytest.ini_options]
addopts = "--cov=x"
"""
    assert needs(pyproject=text) == ["attrs>=20", "freezegun", "hypothesis[cli]>=6", "pytest-cov", "pytest>=7"]
    assert requirements.project_name(tree(pyproject=text)) == "some-thing"


def test_development_groups_stand_in_for_tests() -> None:
    assert needs(pyproject='[project]\nname = "a"\n[dependency-groups]\ndev = ["numpy"]\n') == ["numpy", "pytest>=7"]


def test_setup_files_tox_and_requirement_lists() -> None:
    setup = "import setuptools\nsetuptools.setup(install_requires=['six'], extras_require={'test': ['mock']}, x=f())\n"
    config = (
        "[options]\ninstall_requires =\n    idna\n    requests # web\n[options.extras_require]\ntesting = pretend\n"
    )
    tox = "[testenv]\ndeps =\n    responses\n    py38: old\n    -r requirements.txt\n"
    assert needs(setup_py=setup, setup_cfg=config, tox=tox) == [
        "idna", "mock", "pretend", "pytest>=7", "requests", "responses", "six",
    ]  # fmt: skip
    named = "from setuptools import setup\nneeded = ['six']\nmore = read()\n"
    assert needs(setup_py=named + "setup(install_requires=needed, tests_require=more)\n") == ["pytest>=7", "six"]
    lists = {
        "requirements.txt": "click==7.0 --hash=sha256:00\n-e .\n",
        "requirements/tests.txt": "-r base.txt\nflask\nhttps://host.invalid/x.whl\n",
        "requirements/docs.txt": "myst\n",
        "dev.requirements.txt": "time-machine\n",
    }
    assert requirements.test_requirements(tree(**lists)) == ["click", "flask", "pytest>=7", "time-machine"]


@pytest.mark.parametrize("text", ["[project", "project = 3", "[tool.poetry.group]\nx = 1"])
def test_broken_files_ask_for_nothing(text: str) -> None:
    assert needs(pyproject=text, setup_py="def (", setup_cfg="[[[") == ["pytest>=7"]


def test_backends() -> None:
    assert requirements.backend_requirements(tree(setup_py="")) == ["setuptools>=61", "wheel"]
    hatch = '[build-system]\nrequires = ["hatchling", "hatch-vcs"]\n'
    assert requirements.backend_requirements(tree(pyproject=hatch)) == ["editables", "hatch-vcs", "hatchling"]
    assert not requirements.installable(tree(**{"a.py": ""}))


def test_the_runner_itself_is_no_project() -> None:
    with pytest.raises(UnfitCommit, match="part of the test runner"):
        list(Python().environments(tree(pyproject='[project]\nname = "iniconfig"\n'), "1.0"))


def test_two_ways_are_tried_and_the_project_is_never_installed_from_elsewhere() -> None:
    text = '[project]\nname = "c"\ndependencies = ["attrs<20"]\n'
    first, second = Python().environments(tree(pyproject=text), "2.1")
    assert first.steps[0] == {"pip": ["attrs<20", "pip", "pytest>=7", "setuptools>=61", "wheel"]}
    assert second.steps[0] == {"pip": ["attrs", "pip", "pytest", "setuptools>=61", "wheel"]}
    assert first.steps[-1] == {"run": "python3 -m pip uninstall --yes --quiet c || true"}
    assert "SETUPTOOLS_SCM_PRETEND_VERSION=2.1 " in first.commands[0]


def test_kinds_of_files() -> None:
    python = Python()
    tests = ["tests/test_a.py", "a/tests/data.json", "test_a.py", "a_test.py", "conftest.py", "test.py"]
    assert all(map(python.is_test, tests))
    assert not any(map(python.is_test, ["a/testing.py", "a/latest.py", "attest_a.py"]))
    assert [path for path in tests if python.runnable(path)] == ["tests/test_a.py", "test_a.py", "a_test.py", "test.py"]
    assert [
        p for p in ("README.md", "docs/a.py", ".github/x.yml", "a/data.txt", "CHANGES.rst") if not is_document(p)
    ] == ["a/data.txt"]


def test_go() -> None:
    files = tree(**{"go.mod": "module host.invalid/a\n\ngo 1.20\n", "a.go": "", "tool.py": ""})
    assert isinstance(project_of(files), Go)
    (environment,) = Go().environments(files, "1.0")
    assert environment.steps == ()
    files["go.mod"] = FileChange(b"module a\nrequire host.invalid/b v1.0.0\n")
    with pytest.raises(UnfitCommit, match=r"go\.mod requires other modules"):
        list(Go().environments(files, "1.0"))
    with pytest.raises(UnfitCommit, match="language not supported"):
        project_of(tree(**{"a.hs": ""}))
