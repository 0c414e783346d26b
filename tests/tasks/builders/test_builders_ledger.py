"""The ledger of a build: what a kill at any byte leaves, one process at a time, whole folders only."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from forkgym import tasks
from forkgym.tasks.builders.ledger import Decision, Ledger
from forkgym.tasks.errors import BuildError, TaskNotFoundError

HEAD = {"repository": "a", "split": "train"}
FIRST, SECOND = Decision("1", "one", reason="no test changed"), Decision("2", "two", task="a/2", seconds=1.5)


def begun(out: Path) -> Path:
    with Ledger.open(out, HEAD) as ledger:
        ledger.add(FIRST)
        ledger.add(SECOND)
    return out / ".build/ledger.jsonl"


def test_decisions_are_there_again(tmp_path: Path) -> None:
    begun(tmp_path / "out")
    with Ledger.open(tmp_path / "out", HEAD) as ledger:
        assert (ledger.decisions, ledger.kept, ledger.decided) == ([FIRST, SECOND], [SECOND], {"1", "2"})
        report = ledger.report(more=3)
    assert (report["seen"], report["kept"], report["dropped"], report["more"]) == (2, 1, {"no test changed": 1}, 3)
    assert json.loads((tmp_path / "out/report.json").read_text()) == report


def test_a_ledger_cut_off_at_any_byte_loses_at_most_its_last_line(tmp_path: Path) -> None:
    whole = begun(tmp_path / "whole").read_bytes()
    ends = [place + 1 for place, byte in enumerate(whole) if byte == ord("\n")]
    for cut in range(len(whole) + 1):
        out = tmp_path / "cut"
        shutil.rmtree(out, ignore_errors=True)
        (out / ".build").mkdir(parents=True)
        (out / ".build/ledger.jsonl").write_bytes(whole[:cut])
        lines = sum(end <= cut for end in ends)
        with Ledger.open(out, HEAD) as ledger:
            assert ledger.decisions == [FIRST, SECOND][: max(0, lines - 1)]
            ledger.add(Decision("3", "three"))
        with Ledger.open(out, HEAD) as ledger:
            assert [decision.candidate for decision in ledger.decisions][-1] == "3"


def test_one_process_at_a_time_and_one_purpose(tmp_path: Path) -> None:
    with Ledger.open(tmp_path, HEAD), pytest.raises(BuildError, match="another build is at work"):
        Ledger.open(tmp_path, HEAD).__enter__()
    with pytest.raises(BuildError, match=r"begun with split 'train'; go on with that"):
        Ledger.open(tmp_path, {**HEAD, "split": "test"}).__enter__()
    with Ledger.open(tmp_path, HEAD):
        pass


def test_a_folder_is_whole_or_absent(tmp_path: Path) -> None:
    yaml = b"schema: 1\n"
    with Ledger.open(tmp_path, HEAD) as ledger:
        (tmp_path / ".build/scratch/half").mkdir(parents=True)
        (tmp_path / ".build/scratch/half/task.yaml").write_bytes(yaml)
        with pytest.raises(TaskNotFoundError, match=r"no task\.yaml"):
            tasks.load(tmp_path)
        folder = tmp_path / "a/1"
        ledger.place({"task.yaml": yaml, "hidden/solution/b.py": b"c"}, folder)
        ledger.place({"task.yaml": yaml, "hidden/t.py": b"d"}, folder)
        with pytest.raises(IsADirectoryError):
            ledger.place({"hidden/x": b"", "hidden": b""}, tmp_path / "a/2")
    assert sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.*")) == ["hidden/t.py", "task.yaml"]
    assert not (tmp_path / "a/2").exists()
    with Ledger.open(tmp_path, HEAD):
        assert not (tmp_path / ".build/scratch").exists()
