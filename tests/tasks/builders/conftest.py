"""A small repository made here with git, and the tasks that AutoBuilder makes of it, once for all tests."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from forkgym.sandboxes import backend
from forkgym.tasks.builders.autobuild import Options, build_from_repo
from forkgym.tasks.builders.ledger import Decision

GIT = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_SYSTEM": "/dev/null",
    **{f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in
       {"NAME": "Ada", "EMAIL": "ada@localhost", "DATE": "2024-05-01T12:00:00Z"}.items()},
}  # fmt: skip

PYPROJECT = """\
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "tally"
version = "1.0"

[tool.setuptools]
packages = ["tally"]
"""
MEAN = '''\
"""Means."""


def mean(numbers):
    return sum(numbers) / len(numbers)
'''
MEAN_FIXED = MEAN.replace(
    "    return", '    if not numbers:\n        raise ValueError("no numbers to take the mean of")\n    return'
)
CLOCK = "def clock(seconds):\n    return '%d:%d' % divmod(seconds, 60)\n"
CLOCK_FIXED = CLOCK.replace("'%d:%d'", "'%d:%02d'")
TEST_MEAN = """\
import pytest
from tally.mean import mean


def test_mean():
    assert mean([1, 2, 6]) == 3
"""
TEST_CLOCK = "from tally.clock import clock\n\n\ndef test_clock():\n    assert clock(75) == '1:15'\n"
TEST_EMPTY = """

def test_nothing_has_no_mean():
    with pytest.raises(ValueError, match="no numbers"):
        mean([])
"""
BINARY = bytes(range(256)) * 2


@dataclass
class Repository:
    """A work tree; each call of ``commit`` writes files (``None`` deletes) and commits them."""

    path: Path
    shas: dict[str, str] = field(default_factory=dict[str, str])

    def git(self, *words: str) -> str:
        environment = {**os.environ, **GIT}
        done = subprocess.run(
            ["git", *words], cwd=self.path, env=environment, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    def commit(self, name: str, message: str, **files: str | bytes | None) -> None:
        self.write({path.replace("__", "/"): data for path, data in files.items()})
        self.save(name, message)

    def write(self, files: dict[str, str | bytes | None]) -> None:
        for path, data in files.items():
            target = self.path / path
            if data is None:
                target.unlink()
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data.encode() if isinstance(data, str) else data)

    def save(self, name: str, message: str) -> None:
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        self.shas[name] = self.git("rev-parse", "HEAD")


def make_repository(path: Path) -> Repository:
    """``tally``: its history has one commit of each kind that a builder meets."""
    path.mkdir()
    repo = Repository(path)
    repo.git("init", "-q", "-b", "main")
    repo.write(
        {
            "pyproject.toml": PYPROJECT,
            "LICENSE": "\nThe Licence of Tests\n",
            "tally/__init__.py": "",
            "tally/mean.py": MEAN,
            "tally/clock.py": CLOCK,
            "tally/table.bin": BINARY,
            "tally/far.py": "def fetch(host):\n    return None\n",
            "tests/test_mean.py": TEST_MEAN,
            "tests/test_clock.py": TEST_CLOCK,
            "run.sh": "#!/bin/sh\nexec python3 -m tally\n",
        }
    )
    (path / "run.sh").chmod(0o755)
    (path / "mean").symlink_to("tally/mean.py")
    repo.save("first", "Start")
    repo.git("tag", "v1.0")
    message = "Refuse to take the mean of nothing (#12)\n\nIt should raise ValueError instead of ZeroDivisionError:\n\n"
    message += '    raise ValueError("no numbers to take the mean of")\n\nCo-authored-by: Bob <bob@localhost>\n'
    repo.write({"tally/mean.py": MEAN_FIXED, "tests/test_mean.py": TEST_MEAN + TEST_EMPTY, "CHANGES.md": "- mean\n"})
    repo.save("mean", message)
    repo.write(
        {
            "tally/mean.py": MEAN_FIXED.replace("numbers", "values").replace("no values", "no numbers"),
            "tests/test_mean.py": (TEST_MEAN + TEST_EMPTY).replace("[1, 2, 6]", "(1, 2, 6)"),
        }
    )
    repo.save("refactor", "Call them values")
    coin = "import random\nfrom tally.coin import toss\n\n\ndef test_toss():\n    assert toss(random.random) < 0.001\n"
    repo.write({"tally/coin.py": "def toss(source):\n    return source()\n", "tests/test_coin.py": coin})
    repo.save("flaky", "Toss coins")
    far = "import socket\nfrom tally.far import fetch\n\n\ndef test_far():\n    assert fetch('host.invalid')\n"
    repo.write(
        {
            "tally/far.py": "import socket\n\n\ndef fetch(host):\n    return socket.create_connection((host, 80))\n",
            "tests/test_far.py": far,
        }
    )
    repo.save("network", "Fetch from afar")
    repo.git("checkout", "-q", "-b", "clock")
    repo.write({"tally/clock.py": CLOCK_FIXED})
    repo.save("clock source", "Seconds have two digits")
    repo.write(
        {
            "tests/test_clock.py": "import pytest\nfrom tally.clock import clock\n\n\n"
            "@pytest.mark.parametrize('seconds, shown', [(75, '1:15'), (61, '1:01'), (0, '0:00')])\n"
            "def test_clock(seconds, shown):\n    assert clock(seconds) == shown\n"
        }
    )
    repo.save("clock test", "Test of a minute and a second")
    repo.git("checkout", "-q", "main")
    repo.write({"README.md": "Tallies.\n"})
    repo.save("docs", "A readme")
    repo.git("merge", "-q", "--no-ff", "-m", "Merge branch 'clock'", "clock")
    repo.shas["merge"] = repo.git("rev-parse", "HEAD")
    table = "from tally.tables import last\n\n\ndef test_last():\n    assert last() == 7\n"
    repo.git("mv", "tally/far.py", "tally/remote.py")
    repo.write(
        {
            "tally/tables.py": "from pathlib import Path\n\n\ndef last():\n"
            "    return Path(__file__).with_name('table.bin').read_bytes()[-1]\n",
            "tally/table.bin": BINARY + b"\x00\xff\x07",
            "tests/test_far.py": None,
            "tests/test_tables.py": table,
        }
    )
    repo.save("rename", "Tables have a last entry; far is remote now")
    repo.write({"tests/test_clock.py": TEST_CLOCK.replace("(75) == '1:15'", "(61) == '1:01'")})
    repo.save("test only", "Fewer tests")
    (path / "mean").unlink()
    (path / "mean").symlink_to("tally/clock.py")
    repo.write({"tests/test_mean.py": TEST_MEAN, "tally/mean.py": MEAN})
    (path / "tally/link.py").symlink_to("mean.py")
    repo.save("link", "Link")
    return repo


@dataclass
class Built:
    """What was built of the repository, in a first call that was interrupted and a second."""

    repository: Repository
    out: Path
    first: list[Decision]
    second: list[Decision]
    report: dict[str, Any]


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """The repository ``tally``; who wants to change it takes a clone."""
    return make_repository(tmp_path_factory.mktemp("builders") / "tally")


@pytest.fixture
def another(tmp_path: Path) -> Repository:
    """An empty repository."""
    path = tmp_path / "tally"
    path.mkdir()
    found = Repository(path)
    found.git("init", "-q", "-b", "main")
    return found


@pytest.fixture(scope="session")
def built(repository: Repository, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Tasks of ``tally``; the build was interrupted after its third decision and called again."""
    out = tmp_path_factory.mktemp("built") / "tasks"
    first: list[Decision] = []
    second: list[Decision] = []

    def interrupt(decision: Decision) -> None:
        first.append(decision)
        if len(first) == 3:
            raise KeyboardInterrupt

    options = Options(repeats=2)
    with pytest.raises(KeyboardInterrupt):
        build_from_repo(str(repository.path), out, backend("local"), options, progress=interrupt)
    report = build_from_repo(str(repository.path), out, backend("local"), options, progress=second.append)
    return Built(repository, out, first, second, report)
