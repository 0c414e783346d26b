"""Predictions: classes that add up, the fields that users of swebench know, and what happens to bad input."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from forkgym import tasks
from forkgym.sandboxes import backend
from forkgym.tasks.errors import TaskFormatError
from forkgym.tasks.importers.swebench_eval import Outcome, evaluate, missing, read_predictions, run_report
from forkgym.tasks.importers.swebench_rows import Row, read_rows
from forkgym.tasks.workspace import Bases

pytest.importorskip("swebench", reason="the extra 'swe' is not installed")

IDS = [f"acme__rates-{number}" for number in range(1, 9)]
WRONG = """\
RATES = {"km": 1000, "m": 1, "cm": 0.01}


def convert(value, unit, target):
    return value


def units():
    return sorted(RATES)
"""


def run(
    example: Any, bases: Bases, folder: Path, predictions: list[dict[str, Any]], **changes: Any
) -> tuple[dict[str, Outcome], dict[str, Any]]:
    """Grade predictions for the eight rows; the outcomes, and the report."""
    rows = read_rows([example.row(instance_id=instance, **changes) for instance in IDS])
    made = tasks.from_swebench([row.data for row in rows], image="host", repositories=example.clones, timeout=8)
    path = folder / "preds.json"
    path.write_text(json.dumps(predictions))
    given = read_predictions(path, rows)
    logs = folder / "logs/run_evaluation/t"
    outcomes = evaluate(made.__getitem__, given, bases.backend, logs, concurrency=2)
    return outcomes, run_report(rows, given, logs)


def predicted(number: int, patch: str | None) -> dict[str, Any]:
    return {"instance_id": IDS[number], "model_name_or_path": "acme/model", "model_patch": patch}


@pytest.fixture(scope="module")
def graded(example: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One prediction of each class: a fix, a wrong change, null, blanks, a broken patch, and three rows without any."""
    folder = tmp_path_factory.mktemp("graded")
    bases = Bases(backend("local"))
    wrong = example.patch.replace("+    return value * RATES[unit] / RATES[target]", "+    return value")
    given = [
        predicted(0, example.patch),
        predicted(1, wrong),
        predicted(2, None),
        predicted(3, "\n  \n"),
        predicted(4, "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-nothing like it\n+more\n"),
    ]
    outcomes, report = run(example, bases, folder, given)
    yield folder, outcomes, report, given
    bases.close()


def test_each_prediction_has_one_class(graded: Any) -> None:
    """A12: empty is empty, broken is broken, and the numbers add up."""
    _, outcomes, report, _ = graded
    assert {name: outcome.stage for name, outcome in outcomes.items()} == {
        IDS[0]: "resolved", IDS[1]: "unresolved", IDS[2]: "empty", IDS[3]: "empty", IDS[4]: "malformed",
    }  # fmt: skip
    assert outcomes[IDS[4]].reason.startswith(">>>>> Patch Apply Failed:")
    assert report["resolved_ids"] == [IDS[0]]
    assert report["unresolved_ids"] == [IDS[1]]
    assert report["completed_ids"] == [IDS[0], IDS[1]]
    assert report["empty_patch_ids"] == [IDS[2], IDS[3]]
    assert report["error_ids"] == [IDS[4]]
    assert report["incomplete_ids"] == IDS[5:]
    assert report["submitted_ids"] == IDS[:5]
    classes = ("completed_ids", "empty_patch_ids", "error_ids", "incomplete_ids")
    assert sum(len(report[name]) for name in classes) == report["total_instances"] == 8
    for name in ("resolved", "unresolved", "completed", "empty_patch", "error", "submitted"):
        assert report[f"{name}_instances"] == len(report[f"{name}_ids"])


def test_the_report_is_the_one_that_swebench_writes(graded: Any, example: Any) -> None:
    """Their own function on the same folder, which calls blanks an error: there, blanks reach git."""
    folder, _, report, _ = graded
    (folder / "rows.json").write_text(json.dumps([example.row(instance_id=instance) for instance in IDS]))
    code = (
        "import json; from swebench.harness.reporting import make_run_report\n"
        "preds = {p['instance_id']: p for p in json.load(open('preds.json'))}\n"
        "make_run_report(preds, json.load(open('rows.json')), 't', report_dir='theirs')"
    )
    subprocess.run((sys.executable, "-c", code), cwd=folder, check=True, capture_output=True)
    theirs = json.loads((folder / "theirs/acme__model.t.json").read_text())
    assert theirs["error_ids"] == [IDS[3], IDS[4]]
    blank = {"error_ids", "error_instances", "empty_patch_ids", "empty_patch_instances"}
    assert {k: v for k, v in theirs.items() if k not in blank} == {k: v for k, v in report.items() if k not in blank}


def test_the_logs_can_be_graded_again_by_swebench(graded: Any, example: Any) -> None:
    folder, _, _, _ = graded
    place = folder / "logs/run_evaluation/t/acme__model" / IDS[0]
    assert {path.name for path in place.iterdir()} >= {
        "eval.sh", "patch.diff", "report.json", "run_instance.log", "test_output.txt",
    }  # fmt: skip
    assert (place / "patch.diff").read_text() == example.patch
    (folder / "one.json").write_text(json.dumps([example.row(instance_id=IDS[0])]))
    code = (
        "import json; from swebench.harness import grading, utils\n"
        "spec = utils.make_test_spec(json.load(open('one.json'))[0])\n"
        "pred = {'instance_id': spec.instance_id, 'model_patch': 'x', 'model_name_or_path': 'm'}\n"
        f"log = 'logs/run_evaluation/t/acme__model/{IDS[0]}/test_output.txt'\n"
        "print(json.dumps(grading.get_eval_report(spec, pred, log, True)))"
    )
    done = subprocess.run((sys.executable, "-c", code), cwd=folder, check=True, capture_output=True, text=True)
    assert json.loads(done.stdout) == json.loads((place / "report.json").read_text())


def test_finished_predictions_are_not_run_again(graded: Any, example: Any, bases: Bases) -> None:
    folder, outcomes, report, given = graded
    log = folder / "logs/run_evaluation/t/acme__model" / IDS[0] / "test_output.txt"
    before = log.stat().st_mtime_ns
    again, same = run(example, bases, folder, given)
    assert (again, same, log.stat().st_mtime_ns) == (outcomes, report, before)


def test_another_patch_of_the_same_model_is_graded_anew(
    example: Any, bases: Bases, tmp_path: Path, diff: Callable[[str], str]
) -> None:
    first, _ = run(example, bases, tmp_path, [predicted(0, diff(WRONG))])
    second, _ = run(example, bases, tmp_path, [predicted(0, example.patch)])
    assert (first[IDS[0]].stage, second[IDS[0]].stage) == ("unresolved", "resolved")


def test_a_patch_without_its_last_newline_is_applied(example: Any, bases: Bases, tmp_path: Path) -> None:
    """A01: the last of the commands that swebench tries takes it."""
    assert not example.patch.removesuffix("\n").endswith("\n")
    outcomes, _ = run(example, bases, tmp_path, [predicted(0, example.patch.removesuffix("\n"))])
    assert outcomes[IDS[0]].stage == "resolved"


def test_tests_that_hang_are_out_of_time_and_an_error(example: Any, bases: Bases, tmp_path: Path) -> None:
    outcomes, report = run(
        example, bases, tmp_path, [predicted(0, example.patch)], eval_script=example.script("sleep 60")
    )
    assert outcomes[IDS[0]] == Outcome(IDS[0], "timeout", "the tests took more than 8 s")
    assert (report["error_ids"], report["ambiguous_failure_ids"]) == ([IDS[0]], [IDS[0]])
    assert report["failure_reasons"] == {IDS[0]: "tests_timed_out"}


def test_hostile_patches_stay_inside(example: Any, bases: Bases, tmp_path: Path) -> None:
    climb = "--- a/../../../tmp/forkgym-hostile\n+++ b/../../../tmp/forkgym-hostile\n@@ -0,0 +1 @@\n+x\n"
    outcomes, _ = run(example, bases, tmp_path, [predicted(0, climb)])
    assert outcomes[IDS[0]].stage == "malformed"
    assert not Path("/tmp/forkgym-hostile").exists()


def test_passes_printed_by_the_patch_do_not_hide_a_failing_run(
    example: Any, bases: Bases, tmp_path: Path, diff: Callable[[str], str]
) -> None:
    lines = "\\n".join(f"{example.test(name)} ... ok" for name in ("up", "same", "units"))
    cheat = f'import os\nprint("{lines}", flush=True)\nos._exit(1)\n'
    outcomes, _ = run(example, bases, tmp_path, [predicted(0, diff(cheat))])
    assert outcomes[IDS[0]].stage == "unresolved"


def test_what_is_missing_is_said_before_anything_runs(example: Any, bases: Bases) -> None:
    official = tasks.from_swebench([example.row()])[0]
    assert missing(official, bases.backend).startswith(
        "backend 'local' has no image 'swebench/sweb.eval.x86_64.acme_1776_rates-7"
    )
    there = tasks.from_swebench([example.row()], image="host", repositories=example.clones)[0]
    assert missing(there, bases.backend) == ""
    row = example.row(eval_script=example.script("LANG=C python2.4 -m unittest"))
    lacks = tasks.from_swebench([row], image="host", repositories=example.clones)[0]
    assert (
        missing(lacks, bases.backend) == "image 'host' has no program 'python2.4', which runs the tests of acme/rates"
    )


@pytest.mark.parametrize(
    ("before", "command"),
    [
        ("export PATH=/opt/tools:$PATH", "pytest-of-there -rA"),
        ("pytest-of-there() { :; }", "LANG=C pytest-of-there"),
        ("if [ -e x ]; then", "whatever"),  # what cannot be followed is no proof of absence
        ("", "./run-tests --all"),
    ],
)
def test_a_program_that_the_script_provides_is_not_missing(
    example: Any, bases: Bases, before: str, command: str
) -> None:
    script = example.script(command).replace("cd /testbed\n", f"cd /testbed\n{before}\n", 1)
    row = example.row(eval_script=script)
    task = tasks.from_swebench([row], image="host", repositories=example.clones)[0]
    there = replace(task, setup=(*task.setup, "mkdir /opt/tools && cp /bin/true /opt/tools/pytest-of-there"))
    assert missing(there, bases.backend) == ""


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"instance_id": "nobody__knows-1"}, "item 1: instance_id: the data set has no 'nobody__knows-1'"),
        ({"model_patch": ...}, "item 1: model_patch: this field is missing"),
        ({"model_name_or_path": ".."}, "model_name_or_path: '..' cannot name a folder"),
        ({"model_patch": 3}, "model_patch: must be a text or null, not int"),
        ({"instance_id": None}, "must be texts"),
    ],
)
def test_a_wrong_prediction_is_refused_by_place_and_field(
    example: Any, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    data = {"instance_id": "acme__rates-7", "model_name_or_path": "m", "model_patch": "", **changes}
    path = tmp_path / "preds.json"
    path.write_text(json.dumps([{key: value for key, value in data.items() if value is not ...}]))
    with pytest.raises(TaskFormatError, match=re.escape(message)):
        read_predictions(path, read_rows([example.row()]))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('["x"]', "must be an object"),
        ('"x"', "must hold a list, or an object by id"),
        ("[", "not valid JSON"),
        ("[]", "holds no prediction"),
    ],
)
def test_files_that_hold_no_predictions(example: Any, tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "preds.json"
    path.write_text(text)
    with pytest.raises(TaskFormatError, match=message):
        read_predictions(path, read_rows([example.row()]))


def test_predictions_by_instance_as_lines_and_gold(example: Any, tmp_path: Path) -> None:
    rows: list[Row] = read_rows([example.row()])
    one = {"instance_id": "acme__rates-7", "model_name_or_path": "m", "model_patch": "p"}
    (tmp_path / "a.json").write_text(json.dumps({"acme__rates-7": one}))
    (tmp_path / "b.jsonl").write_text(json.dumps(one) + "\n")
    assert read_predictions(tmp_path / "a.json", rows) == read_predictions(tmp_path / "b.jsonl", rows)
    assert read_predictions("gold", rows)["acme__rates-7"].patch == example.patch
    (tmp_path / "b.jsonl").write_text(json.dumps(one) + "\n" + json.dumps(one) + "\n")
    with pytest.raises(TaskFormatError, match=r"b.jsonl:2: instance_id: 'acme__rates-7' is predicted twice"):
        read_predictions(tmp_path / "b.jsonl", rows)


def test_what_cannot_be_graded_here_is_an_error_and_leaves_nothing_old(
    example: Any, bases: Bases, tmp_path: Path
) -> None:
    rows = read_rows([example.row()])
    (task,) = tasks.from_swebench([example.row()], image="host", repositories=example.clones)
    gold = read_predictions("gold", rows)
    evaluate(lambda _: task, gold, bases.backend, tmp_path)
    assert run_report(rows, gold, tmp_path)["resolved_ids"] == ["acme__rates-7"]
    outcomes = evaluate(lambda _: task, gold, bases.backend, tmp_path, unavailable={"acme__rates-7": "no image"})
    assert outcomes == {"acme__rates-7": Outcome("acme__rates-7", "error", "no image")}
    assert run_report(rows, gold, tmp_path)["error_ids"] == ["acme__rates-7"]
