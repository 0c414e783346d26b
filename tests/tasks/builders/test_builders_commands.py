"""``forkgym tasks build`` and ``synth``: what they print, their exit codes, and that they go on where they were."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from forkgym.cli.main import main


def test_build_goes_on_and_reports(built: Any, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["tasks", "build", str(built.repository.path), "--out", str(built.out), "--repeats", "2"]
    assert main([*words, "--json"]) == 0
    report = json.loads(capfd.readouterr().out)
    assert report["candidates"] == built.report["candidates"]
    assert main(words) == 0
    shown = capfd.readouterr().out
    assert "3 tasks in" in shown
    assert "dropped: needs the network" in shown


def test_wrong_input_is_two_lines_and_exit_code_2(
    built: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    repository, out = str(built.repository.path), str(tmp_path / "out")
    for words, says in (
        (["build", str(tmp_path), "--out", out], "not a git repository"),
        (["build", repository, "--out", out, "--rewriter", "poet"], "unknown rewriter 'poet'"),
        (["build", repository, "--out", str(built.out), "--split", "test"], "was begun with repeats 2, split 'train'"),
        (["synth", repository, "--out", out, "--kind", "typos"], "unknown kind of synthetic task 'typos'"),
    ):
        assert main(["tasks", *words]) == 2
        said = capfd.readouterr().err
        assert said.startswith("error: ")
        assert says in " ".join(said.split())
    assert not (tmp_path / "out").exists()
