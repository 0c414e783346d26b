"""What the tests of a Python project need installed, read from its files; nothing of the project is executed."""

from __future__ import annotations

import ast
import configparser
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from forkgym.tasks.base import FileChange

Files = Mapping[str, FileChange]
# Extras and groups by how likely they are what tests need; only the first kind that exists is taken.
_GROUPS = (("test", "tests", "testing", "unittest", "pytest"), ("dev", "develop", "development", "tox", "ci", "all"))
_REQUIREMENT_FILE = re.compile(r"(^|/)[\w.-]*(require|deps)[\w.-]*\.(txt|in)$|^requirements?/[\w.-]+\.(txt|in)$")
_FOR_TESTS = re.compile(r"test|dev|ci\b", re.IGNORECASE)
# Tools that people list beside pytest, and that no test imports.
_TOOLS = frozenset(
    """
    autoflake black build bump2version bumpversion codecov coveralls flake8 furo isort mkdocs mypy nox pip pre-commit
    pycodestyle pyflakes pylint pyright ruff sphinx tox tox-uv tox-gh-actions twine uv wheel zest-releaser
    """.split()  # noqa: SIM905
)
_PLUGIN_OPTIONS = {
    "--cov": "pytest-cov",
    "--timeout": "pytest-timeout",
    "asyncio_mode": "pytest-asyncio",
    "--benchmark": "pytest-benchmark",
    "-n auto": "pytest-xdist",
}
# What an editable install takes beyond what a project asks for.
_EDITABLE = {"setuptools": ("setuptools>=64", "wheel"), "hatchling": ("editables",)}
_DEFAULT_BACKEND = ("setuptools>=61", "wheel")


def project_name(files: Files) -> str:
    """The canonical name of the distribution, or an empty text."""
    project, poetry = _table(_pyproject(files), "project"), _table(_pyproject(files), "tool", "poetry")
    found = project.get("name") or poetry.get("name") or _ini(files, "setup.cfg").get("metadata", {}).get("name")
    return canonicalize_name(str(found or _setup_call(files).get("name") or ""))


def installable(files: Files) -> bool:
    """True if pip could install the project."""
    pyproject = _pyproject(files)
    return "setup.py" in files or "setup.cfg" in files or "build-system" in pyproject or "project" in pyproject


def backend_requirements(files: Files) -> list[str]:
    """What building the project takes."""
    declared = _table(_pyproject(files), "build-system").get("requires")
    found = _strings(declared) or list(_DEFAULT_BACKEND)
    text = " ".join(found)
    return _clean([*found, *(item for name, more in _EDITABLE.items() if name in text for item in more)])


def test_requirements(files: Files) -> list[str]:
    """What running the project and its tests takes, pytest included, each name once. A guess in good order."""
    pyproject, setup = _pyproject(files), _setup_call(files)
    project = _table(pyproject, "project")
    config = _ini(files, "setup.cfg")
    options = config.get("options", {})
    found = [*_strings(project.get("dependencies")), *_lines(options.get("install_requires", ""))]
    found += _strings(setup.get("install_requires"))
    groups: dict[str, list[str]] = {}
    for name, items in _tables(project.get("optional-dependencies"), pyproject.get("dependency-groups")):
        groups.setdefault(name, []).extend(_strings(items))
    for name, text in config.get("options.extras_require", {}).items():
        groups.setdefault(name, []).extend(_lines(text))
    for name, items in _tables(setup.get("extras_require")):
        groups.setdefault(name, []).extend(_strings(items))
    found += _first_groups(groups)
    found += [*_lines(options.get("tests_require", "")), *_strings(setup.get("tests_require"))]
    found += _poetry(_table(pyproject, "tool", "poetry"))
    found += _from_files(files)
    found += [item for item in _lines(_ini(files, "tox.ini").get("testenv", {}).get("deps", "")) if ":" not in item]
    found += _plugins(files)
    return _clean(["pytest>=7", *found], for_tests=True)


def unpinned(requirements: Iterable[str]) -> list[str]:
    """The same packages in whatever version there is."""
    return sorted({str(_bare(Requirement(item))) for item in requirements})


def _clean(items: Iterable[str], for_tests: bool = False) -> list[str]:
    """The requirements that apply here, one of each name.

    ``for_tests``: no tools, and no exact versions, as old ones have no wheels.
    """
    kept: dict[str, str] = {}
    for item in items:
        try:
            requirement = Requirement(item.split(" #")[0].strip())
        except InvalidRequirement:
            continue
        name = str(canonicalize_name(requirement.name))
        if (for_tests and name in _TOOLS) or requirement.url or (requirement.marker and not _applies(requirement)):
            continue
        requirement.marker = None
        if for_tests and "==" in str(requirement.specifier):
            requirement = _bare(requirement)
        kept.setdefault(name, str(requirement))
    return sorted(kept.values())


def _applies(requirement: Requirement) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": ""})


def _bare(requirement: Requirement) -> Requirement:
    return Requirement(requirement.name + (f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""))


def _first_groups(groups: Mapping[str, list[str]]) -> list[str]:
    for names in _GROUPS:
        if found := [item for name, items in groups.items() if name.lower() in names for item in items]:
            return found
    return []


def _poetry(table: Mapping[str, Any]) -> list[str]:
    parts = [_table(table, "dependencies"), _table(table, "dev-dependencies")]
    parts += [_table(table, "group", name, "dependencies") for name in ("test", "tests", "dev")]
    return [name for part in parts for name in part if name != "python"]


def _from_files(files: Files) -> Iterator[str]:
    for path in sorted(files):
        if _REQUIREMENT_FILE.search(path) and path.count("/") <= 1:
            if "/" not in path and not _FOR_TESTS.search(path) and path != "requirements.txt":
                continue
            if "/" in path and not _FOR_TESTS.search(path.rpartition("/")[2]):
                continue
            for line in _lines(_text(files, path)):
                if not line.startswith("-"):
                    yield line.split(" --hash")[0].rstrip(" \\")


def _plugins(files: Files) -> list[str]:
    text = "\n".join(_text(files, path) for path in ("pyproject.toml", "setup.cfg", "pytest.ini", "tox.ini"))
    return [package for option, package in _PLUGIN_OPTIONS.items() if option in text]


def _setup_call(files: Files) -> dict[str, Any]:
    """Arguments of the call of ``setup`` in ``setup.py``: literals, and names that the module sets to one."""
    try:
        tree = ast.parse(_text(files, "setup.py"))
    except (SyntaxError, ValueError):
        return {}
    found: dict[str, Any] = {}
    named = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) == "setup":
            for argument in node.keywords:
                value = argument.value
                value = named.get(value.id, value) if isinstance(value, ast.Name) else value
                try:
                    found[str(argument.arg)] = ast.literal_eval(value)
                except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                    continue
    return found


def _pyproject(files: Files) -> dict[str, Any]:
    try:
        return tomllib.loads(_text(files, "pyproject.toml"))
    except tomllib.TOMLDecodeError:
        return {}


def _ini(files: Files, path: str) -> dict[str, dict[str, str]]:
    parser = configparser.RawConfigParser(strict=False)
    try:
        parser.read_string(_text(files, path))
    except (configparser.Error, ValueError):
        return {}
    return {name: dict(parser.items(name)) for name in parser.sections()}


def _text(files: Files, path: str) -> str:
    found = files.get(path)
    return (found.data or b"").decode(errors="replace") if found else ""


def _lines(text: str) -> list[str]:
    lines = [line.split("#")[0].strip() for line in text.splitlines()]
    return [line for line in lines if line]


def _strings(value: Any) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list | tuple) else []  # pyright: ignore


def _table(data: Any, *names: str) -> dict[str, Any]:
    """A table in tables; an empty one where something else stands."""
    for name in names:
        data = data.get(name) if isinstance(data, dict) else None  # pyright: ignore
    return data if isinstance(data, dict) else {}  # pyright: ignore


def _tables(*values: Any) -> Iterator[tuple[str, Any]]:
    for value in values:
        if isinstance(value, dict):
            yield from ((str(name), items) for name, items in value.items())  # pyright: ignore
