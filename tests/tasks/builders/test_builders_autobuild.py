"""AutoBuilder on a repository of our own: what it keeps, what it drops and why, and that no task holds its fix."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from forkgym import tasks
from forkgym.sandboxes import backend
from forkgym.tasks import leaks
from forkgym.tasks.base import Task
from forkgym.tasks.builders.autobuild import Options, build_from_repo
from forkgym.tasks.errors import BuildError
from forkgym.tasks.grading import grade
from forkgym.tasks.submission import of_files
from forkgym.tasks.verify import prove, state_of
from forkgym.tasks.workspace import Bases

FIX_LINE = 'raise ValueError("no numbers to take the mean of")'


def task_of(built: Any, name: str) -> Task:
    return tasks.load(built.out)[f"tally/{built.repository.shas[name][:10]}"]


def test_what_is_kept_and_why_the_rest_is_dropped(built: Any) -> None:
    shas = {sha: name for name, sha in built.repository.shas.items()}
    outcome = {shas[item["candidate"]]: item["task"] or item["reason"] for item in built.report["candidates"]}
    flaky = outcome.pop("flaky")
    assert outcome == {
        "first": "first commit",
        "mean": f"tally/{built.repository.shas['mean'][:10]}",
        "refactor": "no test tells the fix",
        "network": "needs the network",
        "merge": f"tally/{built.repository.shas['merge'][:10]}",
        "docs": "no source changed",
        "rename": f"tally/{built.repository.shas['rename'][:10]}",
        "test only": "no source changed",
        "link": "changes links or permissions",
    }
    assert flaky in ("flaky", "tests fail with the fix")
    assert (built.report["kept"], built.report["seen"], built.report["unmeasured"]) == (3, 10, [])
    assert sum(built.report["dropped"].values()) == 7
    assert json.loads((built.out / "report.json").read_text())["candidates"] == built.report["candidates"]


def test_an_interrupted_build_goes_on_where_it_was(built: Any) -> None:
    assert len(built.first) == 3
    together = [decision.candidate for decision in (*built.first, *built.second)]
    assert len(together) == len(set(together)) == 10
    assert [item["candidate"] for item in built.report["candidates"]] == together


def test_each_task_is_sound_by_its_own_proof(built: Any, bases: Bases) -> None:
    found = tasks.load(built.out)
    assert [state_of(task) for task in found] == ["fresh"] * 3
    proof = prove(task_of(built, "merge"), bases, repeats=1)
    assert (proof.oracle, proof.nothing, proof.problems) == (1.0, 0.0, ())
    assert proof.fail_to_pass == ("tests/test_clock.py::test_clock[61-1:01]", "tests/test_clock.py::test_clock[0-0:00]")


def test_a_task_is_the_tree_before_and_the_tests_after(built: Any) -> None:
    task, git = task_of(built, "mean"), built.repository.git
    sha = built.repository.shas["mean"]
    assert set(task.files) == set(git("ls-tree", "-r", "--name-only", f"{sha}^").splitlines()) - {"mean"}
    assert (task.executables, task.links) == (("run.sh",), {"mean": "tally/mean.py"})
    assert task.hidden == {"tests/test_mean.py": (git("show", f"{sha}:tests/test_mean.py") + "\n").encode()}
    assert task.oracle == {"tally/mean.py": (git("show", f"{sha}:tally/mean.py") + "\n").encode()}
    assert task.grading.tests == ("tests/test_mean.py::test_nothing_has_no_mean", "tests/test_mean.py::test_mean")
    assert (task.license, task.split) == ("LICENSE: The Licence of Tests", "train")


def test_renames_and_binary_files_are_part_of_the_solution(built: Any, bases: Bases) -> None:
    task = task_of(built, "rename")
    assert task.files["tally/table.bin"] == bytes(range(256)) * 2
    assert task.oracle["tally/table.bin"] == bytes(range(256)) * 2 + b"\x00\xff\x07"
    assert {path for path, data in task.oracle.items() if data is None} == {"tally/far.py"}
    assert task.oracle["tally/remote.py"] == task.files["tally/far.py"]
    without_table = {path: data for path, data in task.oracle.items() if path != "tally/table.bin"}
    assert grade(task, of_files(task.oracle), bases.box).resolved
    assert not grade(task, of_files(without_table), bases.box).resolved


def test_the_instruction_says_what_is_wrong_and_not_the_fix(built: Any) -> None:
    told = task_of(built, "mean").instruction
    assert told.startswith("Refuse to take the mean of nothing\n\nIt should raise ValueError instead of ZeroDivision")
    assert "test_nothing_has_no_mean: ZeroDivisionError: division by zero" in told
    for hidden in (FIX_LINE, "#12", "Bob", "Co-authored-by"):
        assert hidden not in told
    merged = task_of(built, "merge").instruction
    assert "Seconds have two digits" in merged
    assert "Merge branch" not in merged


def test_the_agent_finds_a_history_of_one_commit_and_an_installed_package(built: Any, bases: Bases) -> None:
    with bases.box(task_of(built, "mean")) as box:
        say: Callable[[str], str] = lambda command: box.exec(command, cwd="/work").stdout.decode().strip()  # noqa: E731
        assert (
            say("git log --all --format=%s; git tag; git remote; git status --porcelain --untracked-files=no") == "Base"
        )
        assert say("git rev-list --all --reflog | sort -u | wc -l") == "1"
        assert say("ls -l run.sh | cut -c1-10; readlink mean") == "-rwxr-xr-x\ntally/mean.py"
        assert say("cd / && python3 -c 'import tally; print(tally.__file__)'") == "/work/tally/__init__.py"
        assert say("python3 -m pytest -q tests 2>&1 | tail -1").startswith("2 passed")


@pytest.mark.parametrize(
    ("attack", "says"),
    [
        ("commit && git tag later && git reset -q --hard HEAD~1", "no ancestors of HEAD"),
        ("commit && git reset -q --hard HEAD~1 && git reflog expire --expire=now --all", "not part of HEAD"),
        ("commit && git reset -q --hard HEAD~1 && git gc -q", "no ancestors of HEAD"),
        ("git tag gold $(git hash-object -w /tmp/gold) && rm /tmp/gold", "not part of HEAD"),
        ("git clone -q --bare . /home/agent/other && git -C /home/agent/other hash-object -w /tmp/gold && "
         "echo /home/agent/other/objects > .git/objects/info/alternates && rm /tmp/gold", "not part of HEAD"),
        ("mkdir .git/rebase-apply && sed s/^/+/ /tmp/gold > .git/rebase-apply/patch && rm /tmp/gold",
         "solution tally/mean.py in /work/.git/rebase-apply/patch"),
        ("mkdir build && mv /tmp/gold build/mean.py", "solution tally/mean.py in /work/build/mean.py"),
        ("grep -h 'no numbers' /tmp/gold > /opt/site/notes; rm /tmp/gold", "line of solution tally/mean.py in /opt"),
        ("git remote add origin https://host.invalid/x.git; rm /tmp/gold", "names a remote"),
        ("commit && git reset -q --hard HEAD~1 && git update-ref refs/notes/x HEAD@{1}", "no ancestors of HEAD"),
    ],
)  # fmt: skip
def test_the_leak_scan_finds_a_planted_fix(built: Any, bases: Bases, attack: str, says: str) -> None:
    task = task_of(built, "mean")
    gold = (task.oracle["tally/mean.py"] or b"").decode()
    start = "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b\n"
    start += "commit() { mv /tmp/gold tally/mean.py && git commit -q -a -m later; }\n"
    planted = f"cat > /tmp/gold <<'END'\n{gold}END\n{start}{attack}"
    with bases.box(replace(task, setup=(*task.setup, planted))) as box:
        assert any(says in problem for problem in leaks.find(box, task))


def test_what_cannot_be_built_is_refused_before_anything_is_written(built: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"

    def refused(source: Path, match: str, target: Path = out) -> None:
        with pytest.raises(BuildError, match=match):
            build_from_repo(str(source), target, backend("local"))

    (tmp_path / "plain").mkdir()
    refused(tmp_path / "plain", "not a git repository")
    refused(tmp_path / "absent", "not a git repository")
    git = built.repository.git
    git("init", "-q", str(tmp_path / "empty"))
    refused(tmp_path / "empty", "HEAD names no commit")
    git("clone", "-q", "--no-local", ".", str(tmp_path / "untested"))
    git("-C", str(tmp_path / "untested"), "rm", "-q", "-r", "tests")
    git("-C", str(tmp_path / "untested"), "commit", "-q", "-m", "No tests")
    refused(tmp_path / "untested", "a Python repository without a file named as a test of pytest")
    assert not out.exists()
    (tmp_path / "full").mkdir()
    (tmp_path / "full/letter.txt").write_text("mine")
    refused(built.repository.path, "holds something else", tmp_path / "full")
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["letter.txt"]
    with pytest.raises(BuildError, match=r"was begun with repeats 2, split 'train'"):
        build_from_repo(str(built.repository.path), built.out, backend("local"), Options(repeats=3, split="test"))


def test_a_package_that_cannot_be_installed_is_named(built: Any, tmp_path: Path) -> None:
    git = built.repository.git
    clone = tmp_path / "clone"
    git("clone", "-q", "--no-local", ".", str(clone))
    git("-C", str(clone), "checkout", "-q", built.repository.shas["first"])
    project = (clone / "pyproject.toml").read_text()
    (clone / "pyproject.toml").write_text(project.replace("setuptools.build_meta", "setuptools.no_such_backend"))
    git("-C", str(clone), "commit", "-q", "-a", "-m", "Build with nothing")
    (clone / "tally/mean.py").write_text("def mean(numbers):\n    return 3\n")
    (clone / "tests/test_mean.py").write_text("def test_mean():\n    assert True\n")
    git("-C", str(clone), "commit", "-q", "-a", "-m", "Three")
    out = tmp_path / "out"
    with pytest.raises(BuildError, match=r"(?s)set-up fails: .*no_such_backend.*report.json has all commits"):
        build_from_repo(str(clone), out, backend("local"), Options(commits=1))
    assert list(out.rglob("task.yaml")) == []
