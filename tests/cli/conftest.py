"""The command line, called in this process: quick, and with the exit code and both outputs in hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from forkgym.cli.main import main


@dataclass(frozen=True)
class Done:
    """What a command left."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def forkgym(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """Run ``forkgym`` with these words in an empty folder, without a terminal."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")

    def run(*words: str) -> Done:
        code = main(words)
        captured = capfd.readouterr()
        return Done(code, str(captured.out), str(captured.err))

    return run
