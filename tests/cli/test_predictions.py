"""``forkgym eval --dataset --predictions``: what it says, writes and refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from forkgym.cli.main import main

pytest.importorskip("swebench", reason="the extra 'swe' is not installed")

MARKS = ": '>>>>> Start Test Output'\npython3 -m unittest\n: '>>>>> End Test Output'\n"
ROW = {
    "repo": "acme/rates", "instance_id": "acme__rates-1", "base_commit": "0" * 40, "patch": "p", "test_patch": "t",
    "problem_statement": "It fails.", "version": "1", "FAIL_TO_PASS": ["a"], "PASS_TO_PASS": [], "image": "acme/image",
    "log_parser": "parse_log_django", "eval_type": "pass_and_fail", "eval_script": MARKS,
}  # fmt: skip


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("rows.json").write_text(json.dumps([ROW]))
    return "rows.json"


def test_an_empty_patch_is_reported_without_a_sandbox(rows: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("preds.jsonl").write_text('{"instance_id": "acme__rates-1", "model_name_or_path": "a/m", "model_patch": ""}\n')
    assert main(["eval", "--dataset", rows, "--predictions", "preds.jsonl", "--out", "out", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["report"]["empty_patch_ids"] == ["acme__rates-1"]
    assert told["report"] == json.loads(Path("out/a__m.forkgym.json").read_text())


def test_no_image_is_said_per_task_before_anything_runs(rows: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "--dataset", rows, "--predictions", "gold", "--out", "out"]) == 2
    said = capsys.readouterr().err
    assert "cannot be graded here: acme__rates-1: backend 'local' has no image 'acme/image'; docker pull" in said
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--dataset", "rows.json"), "give --dataset and --predictions together"),
        (("--dataset", "rows.json", "--predictions", "gold", "--agent", "nop"), "--agent does not fit"),
        (("--dataset", "rows.json", "--predictions", "gold", "-n", "2"), "-n does not fit"),
        (("--image", "host"), "--image does not fit"),
        (("--dataset", "rows.json", "--predictions", "gold", "--run-id", "../x"), "must be a plain name"),
        (("--dataset", "rows.json", "--predictions", "absent.json"), "cannot read absent.json"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    rows: str, arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", *arguments]) == 2
    assert message in capsys.readouterr().err
