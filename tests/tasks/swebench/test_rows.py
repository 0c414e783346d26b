"""Rows of SWE-bench data sets: what is read, what is refused, and what an agent can see of the repository."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from forkgym import tasks
from forkgym.tasks.errors import TaskFormatError
from forkgym.tasks.submission import of_files
from forkgym.tasks.verify import prove
from forkgym.tasks.workspace import Bases

pytest.importorskip("swebench", reason="the extra 'swe' is not installed")

Example = Any


def local(example: Example, *rows: dict[str, Any], **options: Any) -> tasks.TaskSet:
    return tasks.from_swebench(rows or [example.row()], image="host", repositories=example.clones, **options)


def test_a_row_is_a_task(example: Example) -> None:
    (task,) = tasks.from_swebench([example.row()])
    assert (task.id, task.family, task.split) == ("acme__rates-7", "swebench", "test")
    assert task.instruction == "convert(2500, 'm', 'km') returns 2500000 and should return 2.5."
    assert (task.image, task.workdir) == ("swebench/sweb.eval.x86_64.acme_1776_rates-7:latest", "/testbed")
    assert task.grading.tests == (example.test("up"), example.test("same"), example.test("units"))
    assert json.loads(task.origin["row.json"])["difficulty"] == "<15 min fix"
    assert task.hidden == {}


@pytest.mark.parametrize("kind", ["json", "jsonl", "parquet"])
def test_files_of_rows(example: Example, tmp_path: Path, kind: str) -> None:
    rows = [example.row(), example.row(instance_id="acme__rates-8", FAIL_TO_PASS=[example.test("down")])]
    path = tmp_path / f"rows.{kind}"
    if kind == "parquet":
        import pyarrow
        import pyarrow.parquet

        for row in rows:  # one type for each column
            for name in ("FAIL_TO_PASS", "PASS_TO_PASS"):
                row[name] = row[name] if isinstance(row[name], str) else json.dumps(row[name])
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    elif kind == "json":
        path.write_text(json.dumps(rows))
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows) + "\n")
    found = tasks.from_swebench(path)
    assert found.ids == ("acme__rates-7", "acme__rates-8")
    assert found[1].grading.tests[0] == example.test("down")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"eval_script": None}, r"row 1 \(acme__rates-7\): eval_script: this field is missing; rows for .* before 5"),
        ({"patch": None}, r"row 1 \(acme__rates-7\): patch: this field is missing$"),
        ({"instance_id": None}, "row 1: instance_id: this field is missing"),
        ({"PASS_TO_PASS": None}, "PASS_TO_PASS: this field is missing"),
        ({"FAIL_TO_PASS": "[1]"}, "FAIL_TO_PASS: must be a list of test ids"),
        ({"FAIL_TO_PASS": "[oops"}, "FAIL_TO_PASS: not valid JSON"),
        ({"FAIL_TO_PASS": [], "PASS_TO_PASS": "[]"}, "nothing grades this row"),
        ({"problem_statement": 5}, "problem_statement: must be a text"),
        ({"instance_id": "../../etc"}, "instance_id: '../../etc' is no plain name"),
        ({"repo": "rates"}, "repo: 'rates' is no plain name"),
        ({"base_commit": "main; rm -rf /"}, "base_commit: 'main; rm -rf /' is no plain name"),
        ({"log_parser": "parse_log_none"}, "log_parser: swebench has no 'parse_log_none'"),
        ({"eval_type": "maybe"}, "eval_type: must be one of pass_and_fail, fail_only, not 'maybe'"),
        ({"eval_script": "pytest\n"}, "eval_script: lacks the mark '>>>>> Start Test Output'"),
        ({"image_assets": {"test_patch": [{"path": "../x.png"}]}}, "image_assets: the path '../x.png' leaves"),
        ({"image_assets": "[]x"}, "image_assets: not valid JSON"),
    ],
)
def test_a_wrong_row_is_refused_by_row_and_field(example: Example, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(TaskFormatError, match=message):
        tasks.from_swebench([example.row(**changes)])


def test_files_that_are_no_rows(example: Example, tmp_path: Path) -> None:
    with pytest.raises(TaskFormatError, match=r"ends in .json, .jsonl, .parquet; nothing is fetched by name"):
        tasks.from_swebench("SWE-bench/SWE-bench_Verified")
    with pytest.raises(TaskFormatError, match=r"cannot read .*absent.json: No such file"):
        tasks.from_swebench(tmp_path / "absent.json")
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps(example.row()) + '\n{"instance_id": \n')
    with pytest.raises(TaskFormatError, match=r"rows.jsonl:2: not valid JSON"):
        tasks.from_swebench(rows)
    rows.write_bytes(b"\xff\xfe")
    with pytest.raises(TaskFormatError, match="not UTF-8"):
        tasks.from_swebench(rows)
    rows.write_text("\n")
    with pytest.raises(TaskFormatError, match="holds no row"):
        tasks.from_swebench(rows)
    (tmp_path / "x.parquet").write_bytes(b"PAR1")
    with pytest.raises(TaskFormatError, match="not a parquet file"):
        tasks.from_swebench(tmp_path / "x.parquet")
    with pytest.raises(TaskFormatError, match="'acme__rates-7' is also that of row 1"):
        tasks.from_swebench([example.row(), example.row()])


def test_what_a_local_environment_lacks_is_named(example: Example, tmp_path: Path) -> None:
    with pytest.raises(TaskFormatError, match="give image and repositories together"):
        tasks.from_swebench([example.row()], image="host")
    with pytest.raises(TaskFormatError, match=r"row 1 \(acme__rates-7\): repo: no clone of acme/rates; looked for"):
        tasks.from_swebench([example.row()], image="host", repositories=tmp_path)[0]
    with pytest.raises(TaskFormatError, match=r"row 1 \(acme__rates-7\): base_commit: .* has no commit 1{40}"):
        local(example, example.row(base_commit="1" * 40))[0]
    row = example.row(image_assets=json.dumps({"test_patch": [{"path": "tests/a.png", "url": "x"}], "patch": []}))
    with pytest.raises(
        TaskFormatError, match=r"needs the binary file tests/a.png, which only a URL holds; give assets"
    ):
        local(example, row)[0]
    with pytest.raises(TaskFormatError, match=r"there is no .*acme__rates-7/test_assets/tests/a.png"):
        local(example, row, assets=tmp_path)[0]


def test_the_solution_solves_it_and_nothing_does_not(example: Example, bases: Bases) -> None:
    proof = prove(local(example)[0], bases, repeats=1)
    assert (proof.oracle, proof.nothing, proof.problems) == (1.0, 0.0, ())


def test_the_repository_holds_no_future(example: Example, bases: Bases) -> None:
    """A07: neither the later commit, its tag, nor a line that only the fix has, can be found."""
    task = local(example)[0]
    with bases.box(task) as box:
        seen = box.exec("git log --all --oneline; git tag; git remote -v; git branch -a; git stash list; ls -A").stdout
        assert seen.decode().split("\n")[1:] == ["* main", ".git", "rates", "tests", ""]
        assert not box.exec(f"git cat-file -e {example.fix}").ok
        assert box.exec(f"git cat-file -e {example.base}").ok
        assert box.exec("git log --all -S'/ RATES[target]' --oneline").stdout == b""
        assert not box.exec("grep -rq 'RATES\\[unit\\] / RATES' .").ok


def test_an_edit_of_the_tests_counts_for_nothing(
    example: Example, bases: Bases, grade_files: Callable[..., Any]
) -> None:
    """A05: the row's script puts its own tests in place, whatever was submitted there."""
    task = local(example)[0]
    cheat = {"tests/test_convert.py": b"import unittest\n"}
    assert grade_files(task, {**cheat, "rates/convert.py": example.fixed.encode()}).resolved
    verdict = grade_files(task, cheat)
    assert (verdict.stage, verdict.score) == ("unresolved", 0.0)


def test_binary_assets_stand_when_the_tests_run(
    example: Example, bases: Bases, grade_files: Callable[..., Any], tmp_path: Path
) -> None:
    name = "tests/base line's.png"
    look = f'test "$(od -An -tx1 "{name}")" = \' 89 50 00 0a\''
    row = example.row(
        image_assets={"test_patch": [{"path": name, "url": "https://example.org/x"}]},
        eval_script=example.script(f"{look} && python3 -B -m unittest -v tests.test_convert"),
    )
    path = tmp_path / "acme__rates-7" / "test_assets" / name
    path.parent.mkdir(parents=True)
    path.write_bytes(b"\x89P\0\n")
    task = local(example, row, assets=tmp_path)[0]
    assert grade_files(task, {"rates/convert.py": example.fixed.encode()}).resolved


@pytest.fixture
def grade_files(bases: Bases) -> Callable[..., Any]:
    from forkgym.tasks.grading import grade

    return lambda task, files: grade(task, of_files(files), bases.box)
