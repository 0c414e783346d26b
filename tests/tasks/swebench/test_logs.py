"""Verdicts on logs, worked out by hand; the package's parsers are asked about logs that field reports call hard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from forkgym import tasks
from forkgym.sandboxes.base import ExecResult
from forkgym.tasks.base import Task
from forkgym.tasks.errors import TaskFormatError
from forkgym.tasks.grading.base import Report
from forkgym.tasks.importers.swebench_rows import require_swebench
from forkgym.tasks.importers.swebench_runner import MAX_LOG, read_log, spec_of_row

pytest.importorskip("swebench", reason="the extra 'swe' is not installed")

OK, FAIL, SKIP = "ok", "FAIL", "skipped 'no network'"


def log_of(example: Any, code: int = 0, before: str = "", **results: str) -> bytes:
    lines = [f"{example.test(name)} ... {result}" for name, result in results.items()]
    start, end = "+ : '>>>>> Start Test Output'", "+ : '>>>>> End Test Output'"
    return "\n".join([before, start, *lines, end, f">>>>> Test Exit Code: {code}", ""]).encode()


def read(task: Task, log: bytes, **fields: Any) -> Report:
    return read_log(task, ExecResult(0, log, b"", 1.0, **fields))


def passed(report: Report) -> list[bool]:
    return [record.passed for record in report.records.values()]


@pytest.fixture
def task(example: Any) -> Task:
    return tasks.from_swebench([example.row()])[0]


def test_every_listed_test_must_pass(example: Any, task: Task) -> None:
    assert passed(read(task, log_of(example, up=OK, same=OK, units=OK))) == [True, True, True]
    assert passed(read(task, log_of(example, 1, up=OK, same=FAIL, units=OK))) == [True, False, True]
    assert passed(read(task, log_of(example, up=OK, units=OK))) == [True, False, True]


def test_a_skip_keeps_what_passed_and_mends_nothing(example: Any, task: Task) -> None:
    assert passed(read(task, log_of(example, up=OK, same=SKIP, units=OK))) == [True, True, True]
    assert passed(read(task, log_of(example, up=SKIP, same=OK, units=OK))) == [False, True, True]


@pytest.mark.parametrize("text", [">>>>> Patch Apply Failed", ">>>>> Tests Timed Out", ">>>>> Reset Failed"])
def test_a_log_that_says_it_is_invalid(example: Any, task: Task, text: str) -> None:
    report = read(task, log_of(example, before=text, up=OK, same=OK, units=OK))
    assert (report.records, report.broken) == ({}, "swebench finds no valid run of the tests")


def test_passes_that_the_exit_code_contradicts_are_no_run(example: Any, task: Task) -> None:
    report = read(task, log_of(example, 2, up=OK, same=OK, units=OK))
    assert (report.records, report.broken) == ({}, "swebench finds no valid run of the tests")


def test_no_output_names_what_swebench_suspects(example: Any, task: Task) -> None:
    assert read(task, b"").broken == "swebench finds no valid run of the tests"
    report = read(task, b"ModuleNotFoundError: No module named 'rates'\n")
    assert report.broken == "swebench finds no valid run of the tests (missing_module)"


def test_out_of_time_and_too_much_output_prove_nothing(example: Any, task: Task) -> None:
    good = log_of(example, up=OK, same=OK, units=OK)
    assert read(task, good, timed_out=True).timed_out
    report = read(task, good, truncated=True, total_bytes=MAX_LOG + 1)
    assert (report.records, report.broken) == ({}, f"the tests wrote {MAX_LOG + 1} bytes; at most {MAX_LOG} are read")


def test_a_log_that_is_no_utf8(example: Any, task: Task) -> None:
    log = log_of(example, before="x", up=OK, same=OK, units=OK).replace(b"x", b"\xff\xfe\r\n")
    assert passed(read(task, log)) == [True, True, True]


def test_b03_noise_between_a_test_and_its_verdict(example: Any, task: Task) -> None:
    log = log_of(example, 1, up=OK, same=OK, units=FAIL)
    said = b"System check identified no issues (0 silenced).\nok"
    noise = log.replace(b"TestConvert.test_up) ... ok", b"TestConvert.test_up) ... " + said)
    assert noise != log
    assert passed(read(task, noise)) == passed(read(task, log)) == [True, True, False]


def test_where_only_failures_are_logged_silence_is_a_pass_if_the_suite_ran(example: Any) -> None:
    row = example.row(log_parser="parse_log_marked", eval_type="fail_only", FAIL_TO_PASS=["a"], PASS_TO_PASS=["b"])
    task = tasks.from_swebench([row])[0]
    assert passed(read(task, log_of(example).replace(b">>>>> End", b"12 specs, 0 failures\n>>>>> End"))) == [True, True]
    assert read(task, log_of(example)).broken == "swebench finds no valid run of the tests"


def test_the_exit_code_of_the_tests_is_recorded_by_the_script(task: Task) -> None:
    lines = spec_of_row(task).eval_script.split("\n")
    end = next(number for number, line in enumerate(lines) if "End Test Output" in line)
    assert lines[end - 1] == "SWEBENCH_TEST_EXIT_CODE=$?"
    assert lines[end + 1] == 'echo ">>>>> Test Exit Code: $SWEBENCH_TEST_EXIT_CODE"'


def test_options_that_lack_a_field_are_named(task: Task) -> None:
    from dataclasses import replace

    options = {key: value for key, value in task.grading.options.items() if key != "log_parser"}
    broken = replace(task, grading=replace(task.grading, options=options))
    with pytest.raises(
        TaskFormatError, match=r"acme__rates-7: grading.options: the runner 'swebench' needs log_parser"
    ):
        spec_of_row(broken)


def test_ours_and_theirs_agree_on_every_mix_of_results(example: Any, task: Task, tmp_path: Path) -> None:
    """The verdict on a log is the one that swebench's own function gives, for 4 results of 3 tests and 2 exit codes."""
    grading = require_swebench().grading
    prediction = {"instance_id": "acme__rates-7", "model_patch": "x", "model_name_or_path": "m"}
    seen = set()
    for code in (0, 1):
        for mix in range(64):
            kinds = [(OK, FAIL, SKIP, "")[mix >> 2 * n & 3] for n in range(3)]
            results = {name: kind for name, kind in zip(("up", "same", "units"), kinds, strict=True) if kind}
            log = tmp_path / "log.txt"
            log.write_bytes(log_of(example, code, **results))
            theirs = grading.get_eval_report(spec_of_row(task), prediction, str(log), True)["acme__rates-7"]["resolved"]
            ours = read(task, log.read_bytes())
            assert (not ours.broken and all(passed(ours))) == theirs, (code, results)
            seen.add(theirs)
    assert seen == {True, False}


def test_b01_ids_with_blanks_are_one_to_swebench(example: Any) -> None:
    """Its parser cuts an id at the first blank, as the public lists of tests do. The verdict stays the one it gives."""
    cut = "test_n.py::test_msg[unit"
    row = example.row(log_parser="parse_log_pytest", FAIL_TO_PASS=[cut], PASS_TO_PASS=[])
    task = tasks.from_swebench([row])[0]
    lines = {
        "km": "PASSED test_n.py::test_msg[unit 'km' is not valid]",
        "kg": "FAILED test_n.py::test_msg[unit 'kg' is not valid] - AssertionError: bad - value",
    }
    both = log_of(example, 1).replace(b"+ : '>>>>> End", f"{lines['km']}\n{lines['kg']}\n+ : '>>>>> End".encode())
    one = log_of(example).replace(b"+ : '>>>>> End", f"{lines['km']}\n+ : '>>>>> End".encode())
    assert passed(read(task, both)) == [False]
    assert passed(read(task, one)) == [True]
