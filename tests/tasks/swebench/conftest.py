"""A small repository of our own with one bug, its fix in a later commit, and rows shaped like the public ones."""

from __future__ import annotations

import copy
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

SOURCE = """\
RATES = {"km": 1000, "m": 1, "cm": 0.01}


def convert(value, unit, target):
    return value * RATES[unit] * RATES[target]


def units():
    return sorted(RATES)
"""
TESTS = """\
import unittest

from rates.convert import convert, units


class TestConvert(unittest.TestCase):
    def test_same(self):
        self.assertEqual(convert(3, "m", "m"), 3)

    def test_units(self):
        self.assertEqual(units(), ["cm", "km", "m"])
"""
ADDED = """\

    def test_up(self):
        self.assertEqual(convert(2500, "m", "km"), 2.5)

    def test_down(self):
        self.assertEqual(convert(2, "km", "m"), 2000)
"""
FIXED = SOURCE.replace("* RATES[target]", "/ RATES[target]")
ID = "acme__rates-7"


@dataclass(frozen=True)
class Example:
    """``clones`` holds ``acme/rates``; ``fix`` is the commit after the base, which nobody may see."""

    clones: Path
    base: str
    fix: str
    patch: str
    test_patch: str
    fixed: str = FIXED

    def row(self, **changes: Any) -> dict[str, Any]:
        """A row; ``None`` leaves a field out."""
        values = copy.deepcopy(self._row()) | changes
        return {key: value for key, value in values.items() if value is not None}

    def _row(self) -> dict[str, Any]:
        return {
            "repo": "acme/rates",
            "instance_id": ID,
            "base_commit": self.base,
            "patch": self.patch,
            "test_patch": self.test_patch,
            "problem_statement": "convert(2500, 'm', 'km') returns 2500000 and should return 2.5.\n",
            "hints_text": "",
            "created_at": "2026-01-01T00:00:00Z",
            "version": "1.0",
            "FAIL_TO_PASS": f'["{self.test("up")}"]',
            "PASS_TO_PASS": [self.test("same"), self.test("units")],
            "environment_setup_commit": self.base,
            "image": "swebench/sweb.eval.x86_64.acme_1776_rates-7:latest",
            "log_parser": "parse_log_django",
            "eval_type": "pass_and_fail",
            "eval_script": self.script("python3 -B -m unittest -v tests.test_convert"),
            "difficulty": "<15 min fix",
        }

    def test(self, name: str) -> str:
        """The id of a test as the log shows it."""
        return f"test_{name} (tests.test_convert.TestConvert.test_{name})"

    def script(self, command: str) -> str:
        """An evaluation script in the form of the published ones, which runs ``command``."""
        return f"""#!/bin/bash
set -uxo pipefail
cd /testbed
git config --global --add safe.directory /testbed
git status
git checkout {self.base} tests/test_convert.py
git apply -v - <<'EOF_114329324912'
{self.test_patch}
EOF_114329324912
: '>>>>> Start Test Output'
{command}
: '>>>>> End Test Output'
git checkout {self.base} tests/test_convert.py
"""


def git(folder: Path, *arguments: str) -> str:
    """Run git by itself: no configuration of the user, always the same dates."""
    date = "2026-01-01T00:00:00Z"
    names = {f"GIT_{who}_{what}": "t@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    dates = {f"GIT_{who}_DATE": date for who in ("AUTHOR", "COMMITTER")}
    own = {"GIT_CONFIG_GLOBAL": "/dev/null", "PATH": os.environ["PATH"], **names, **dates}
    return subprocess.run(("git", *arguments), cwd=folder, env=own, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="session")
def example(tmp_path_factory: pytest.TempPathFactory) -> Example:
    """The repository with its base commit, the fix after it, a tag and a branch on the fix."""
    clones = tmp_path_factory.mktemp("clones")
    repo = clones / "acme" / "rates"
    start = {"rates/__init__.py": "", "rates/convert.py": SOURCE, "tests/__init__.py": ""}
    for path, text in {**start, "tests/test_convert.py": TESTS}.items():
        (repo / path).parent.mkdir(parents=True, exist_ok=True)
        (repo / path).write_text(text)
    git(repo, "init", "-q", "-b", "main")
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "rates")
    base = git(repo, "rev-parse", "HEAD").strip()
    (repo / "rates/convert.py").write_text(FIXED)
    (repo / "tests/test_convert.py").write_text(TESTS + ADDED)
    git(repo, "commit", "-q", "-a", "-m", "divide by the target's rate")
    git(repo, "tag", "v2")
    fix = git(repo, "rev-parse", "HEAD").strip()
    patches = [git(repo, "diff", base, fix, "--", part) for part in ("rates", "tests")]
    return Example(clones, base, fix, *patches)


@pytest.fixture
def diff(tmp_path: Path) -> Callable[[str], str]:
    """``diff(text)``: the patch that gives ``rates/convert.py`` this text."""

    def make(text: str) -> str:
        folder = tmp_path / "diff"
        (folder / "rates").mkdir(parents=True, exist_ok=True)
        git(folder, "init", "-q")
        (folder / "rates/convert.py").write_text(SOURCE)
        git(folder, "add", "-A")
        (folder / "rates/convert.py").write_text(text)
        return git(folder, "diff")

    return make
