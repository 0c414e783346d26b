"""The documents keep their word: code runs, commands, options, files and links exist."""

from __future__ import annotations

import functools
import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from forkgym.sandboxes.conformance import SUITES

ROOT = Path(__file__).parent.parent
ROOMS = ("agents", "envs", "sandboxes", "tasks", "trainers")
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("*/README.md")])
GROUPS = ("bench", "harness", "images", "tasks")
NESTED = (["import"], ["export"])  # groups in the group `tasks`
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`\n]+)`")


def blocks(path: Path, language: str) -> list[str]:
    """The fenced blocks of one language; an unnamed block counts as shell."""
    return [code for name, code in FENCE.findall(path.read_text()) if (name or "sh") == language]


def commands() -> list[list[str]]:
    """Every command of a shell block, as words, without comments."""
    lines = [line for path in DOCUMENTS for block in blocks(path, "sh") for line in block.splitlines()]
    return [words for line in lines if (words := shlex.split(line, comments=True))]


@functools.cache
def forkgym_help(*command: str) -> str:
    """The help of a command. Fails if there is no such command."""
    done = subprocess.run(
        [sys.executable, "-m", "forkgym.cli.main", *command, "--help"],
        capture_output=True, text=True, check=False, env={"COLUMNS": "200", "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert done.returncode == 0, f"forkgym {' '.join(command)}: {done.stderr}"
    return done.stdout


def test_readme_python_runs_as_written(tmp_path: Path) -> None:
    found = blocks(ROOT / "README.md", "python")
    assert found
    for code in found:
        done = subprocess.run(
            [sys.executable, "-P", "-W", "error", "-c", code],
            cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")


def test_readme_snippet_does_what_its_comment_says(tmp_path: Path) -> None:
    """Run on from the snippet: the branches are independent, and the episode goes on in each."""
    code = blocks(ROOT / "README.md", "python")[0]
    more = """
write = {"tool": "bash", "arguments": {"command": "echo a > only-in-a && ls"}}
look = {"tool": "bash", "arguments": {"command": "ls"}}
in_a = branch_a.step(write)[0]["text"]
in_b = branch_b.step(look)[0]["text"]
in_parent = env.step(look)[0]["text"]
assert "only-in-a" in in_a, in_a
assert "only-in-a" not in in_b, in_b
assert "only-in-a" not in in_parent, in_parent
assert branch_a.transcript[:2] == branch_b.transcript[:2]
for each in (branch_a, branch_b, env):
    each.close()
"""
    done = subprocess.run(
        [sys.executable, "-P", "-c", code + more],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_commands_in_docs_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    seen = 0
    for words in commands():
        if words[0] == "make":
            assert set(words[1:]) <= targets, words
            seen += 1
        elif words[0] == "forkgym":
            group = words[1 : 4 if words[2:3] in NESTED else 3] if words[1] in GROUPS else words[1:2]
            shown = forkgym_help(*group)
            for option in (word for word in words if word.startswith("-")):
                assert re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", shown), words
            seen += 1
        elif "/" in words[0]:
            assert (ROOT / words[0]).is_file(), words
            seen += 1
        elif words[:2] == ["python", "-m"]:
            assert importlib.util.find_spec(words[2]), words
            seen += 1
    assert seen >= 10


def assert_exists(code: str) -> None:
    """A file, or a test in it."""
    path, _, name = code.partition("::")
    assert (ROOT / path).exists(), code
    if name:
        assert re.search(rf"^def {name}\(", (ROOT / path).read_text(), re.MULTILINE), code


def test_what_invariants_name_exists() -> None:
    text = (ROOT / "docs" / "invariants.md").read_text()
    named = [code for code in CODE.findall(text) if "/" in code and not code.startswith("forkgym/")]
    assert named
    for code in named:
        assert_exists(code)


def test_what_the_page_on_sandboxes_names_exists() -> None:
    named = CODE.findall((ROOT / "docs" / "sandboxes.md").read_text())
    for suite, cases in SUITES.items():
        known = {case.name for case in cases}
        shown = {code.removeprefix(f"{suite}:") for code in named if code.startswith(f"{suite}:")}
        shown.discard("")
        assert shown
        assert shown <= known, f"{suite}: no such case: {sorted(shown - known)}"
    tests = [code for code in named if code.startswith("tests/")]
    assert tests
    for code in tests:
        assert_exists(code)


def test_code_on_the_page_on_sandboxes_runs(tmp_path: Path) -> None:
    for code in blocks(ROOT / "docs" / "sandboxes.md", "python"):
        done = subprocess.run(
            [sys.executable, "-P", "-W", "error", "-c", code],
            cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("room", [*ROOMS, "src/forkgym/cli", "src/forkgym/viewer"])
def test_room_readme_lists_its_files(room: str) -> None:
    folder = ROOT / room
    text = (folder / "README.md").read_text()
    assert len(text.splitlines()) <= 25
    there = {p.name + "/" for p in folder.iterdir() if p.is_dir() and p.name != "__pycache__"}
    there |= {p.name for p in folder.glob("*.py") if p.name != "__init__.py"}
    listed = {code for code in CODE.findall(text) if re.fullmatch(r"[\w/.-]+(\.py|/)", code)}
    missing = {name for name in there if not any(code == name or code.startswith(name) for code in listed)}
    assert not missing, f"{room}/README.md does not list {sorted(missing)}"
    known = {p.name for p in folder.rglob("*.py")} | {p.name + "/" for p in folder.rglob("*") if p.is_dir()}
    gone = {code for code in listed if Path(code).name + "/" * code.endswith("/") not in known}
    assert not gone, f"{room}/README.md lists what is not there: {sorted(gone)}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text()):
        if "://" not in target:
            assert (path.parent / target).exists(), f"{path.name} links to {target}"


def test_decisions_are_listed() -> None:
    folder = ROOT / "docs" / "decisions"
    listed = set(re.findall(r"`(\d{3}-[\w-]+\.md)`", (folder / "README.md").read_text()))
    assert listed == {path.name for path in folder.glob("[0-9]*.md")}


def test_contributing_is_short() -> None:
    assert len((ROOT / "CONTRIBUTING.md").read_text().splitlines()) <= 60
