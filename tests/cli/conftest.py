"""The command line as its users start it: a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def forkgym(tmp_path: Path) -> Run:
    """Run ``forkgym`` with these words in an empty folder, without a terminal."""

    def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-P", "-m", "forkgym.cli.main", *words],
            cwd=tmp_path,
            env={**os.environ, "COLUMNS": "120", **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )

    return run
