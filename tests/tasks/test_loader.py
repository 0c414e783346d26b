"""Loading: patterns, paths, errors with file, key and line, and an order that only the seed decides."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from forkgym import tasks
from forkgym.tasks.base import Limits
from forkgym.tasks.errors import TaskFormatError, TaskNotFoundError

GOOD = """\
schema: 1
family: swe
license: Apache-2.0
source: written for this test
grading:
  runner: unittest
  timeout: 5
  tests: [test_m.T.test_one]
instruction: Fix m.py.
split: train
"""
FAMILY = """\
schema: 1
family: swe
license: Apache-2.0
source: written for this test
grading: {runner: unittest, tests: [test_m.T.test_one]}
variants:
  - {id: a, split: train, instruction: Fix a., edits: [{file: m.py, find: "return 1", replace: "return 2"}]}
  - {id: b, split: test, instruction: Fix b., edits: [{file: m.py, find: "f():", replace: "g():"}]}
"""


def write(root: Path, yaml: str = GOOD, *, files: dict[str, str] | None = None) -> Path:
    contents = {"task.yaml": yaml, "files/m.py": "def f():\n    return 2\n", "hidden/test_m.py": "import m\n"}
    contents["hidden/solution/m.py"] = "def f():\n    return 1\n"
    for name, text in (contents if files is None else files).items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def write_family(root: Path, yaml: str = FAMILY) -> Path:
    write(root, yaml)
    (root / "files/m.py").rename(root / "files/README.md")
    return root


def test_a_plain_folder_becomes_one_task(tmp_path: Path) -> None:
    (task,) = tasks.load(write(tmp_path / "half"))
    assert task.id == "half"
    assert dict(task.files) == {"m.py": b"def f():\n    return 2\n"}
    assert dict(task.hidden) == {"test_m.py": b"import m\n"}
    assert dict(task.oracle) == {"m.py": b"def f():\n    return 1\n"}
    assert (task.grading.timeout, task.limits, task.split) == (5, Limits(), "train")


def test_a_family_breaks_the_solution_once_per_variant(tmp_path: Path) -> None:
    found = tasks.load(write_family(tmp_path / "fam"))
    assert found.ids == ("fam/a", "fam/b")
    first = found["fam/a"]
    assert first.files["m.py"] == b"def f():\n    return 2\n"
    assert found["fam/b"].files["m.py"] == b"def g():\n    return 1\n"
    assert first.oracle == {"m.py": b"def f():\n    return 1\n"}
    assert tasks.load(tmp_path / "fam", split="test").ids == ("fam/b",)


@pytest.mark.parametrize(
    ("change", "line", "says"),
    [
        (("timeout: 5", "timeout: 0"), 7, "grading.timeout: must be > 0"),
        (("timeout: 5", "timeot: 5"), 7, "grading.timeot: unknown key; did you mean 'timeout'?"),
        (("family: swe", "colour: red"), 2, "colour: unknown key"),
        (("schema: 1", "schema: 2"), 1, "schema: input should be 1"),
        (("  runner: unittest\n", ""), 5, "grading.runner: this key is missing"),
        (("tests: [test_m.T.test_one]", "tests: [a, a]"), 8, "grading.tests: listed twice: a"),
        (("split: train", "split: train\nsplit: test"), 11, "split: this key stands here twice"),
        (("split: train\n", ""), 1, "the key 'split' is missing"),
        (("split: train", "split: [train"), 11, "not valid YAML"),
        (("split: train", "split: train\nlimits:\n  memory: lots"), 11, "limit 'memory' is 'lots'"),
        (("split: train", "split: train\nworkdir: work"), 11, "workdir: must be a plain absolute path"),
        (("split: train", "split: train\nbudget: {turns: yes}"), 11, "budget.turns: input should be a valid integer"),
    ],
)
def test_errors_name_file_line_and_key(tmp_path: Path, change: tuple[str, str], line: int, says: str) -> None:
    folder = write(tmp_path / "bad", GOOD.replace(*change))
    with pytest.raises(TaskFormatError) as caught:
        tasks.load(folder)
    where, _, what = str(caught.value).partition(f"task.yaml:{line}: ")
    assert where == f"{folder}/"
    assert says in what


@pytest.mark.parametrize(
    ("change", "line", "says"),
    [
        (('find: "return 1"', "find: nowhere"), 7, "variants.0.edits.0.find: occurs 0 times in m.py; must be once"),
        (('find: "f():"', "find: e"), 8, "variants.1.edits.0.find: occurs 2 times in m.py; must be once"),
        (('file: m.py, find: "f():"', "file: n.py, find: x"), 8, "hidden/solution/ has no 'n.py'"),
        (('file: m.py, find: "f():"', "file: ../m.py, find: x"), 8, "must be a plain relative path"),
        (('replace: "return 2"', 'replace: "return 1"'), 7, "variants.0.edits: change nothing"),
        (("id: b", "id: a"), 1, "variants share an id: a"),
        (("split: test, ", ""), 8, "variants.1.split: this key is missing"),
        (('edits: [{file: m.py, find: "f():"', 'edits: [{fil: m.py, find: "f():"'), 8, "did you mean 'file'?"),
    ],
)
def test_errors_of_a_family_name_the_variant(tmp_path: Path, change: tuple[str, str], line: int, says: str) -> None:
    folder = write_family(tmp_path / "bad", FAMILY.replace(*change))
    with pytest.raises(TaskFormatError) as caught:
        list(tasks.load(folder))
    assert f"task.yaml:{line}: " in str(caught.value)
    assert says in str(caught.value)


def test_a_link_in_a_task_folder_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "linked")
    (folder / "files/passwd").symlink_to("/etc/passwd")
    with pytest.raises(TaskFormatError, match="symbolic link"):
        list(tasks.load(folder))


def test_a_linked_hidden_folder_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "linked")
    (folder / "hidden").rename(tmp_path / "elsewhere")
    (folder / "hidden").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(TaskFormatError, match="symbolic link"):
        tasks.load(folder)


def test_a_hidden_test_among_the_files_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "leaky")
    (folder / "files/test_m.py").write_text("import m\n")
    with pytest.raises(TaskFormatError, match=r"test_m\.py: the agent would see"):
        list(tasks.load(folder))


def test_bytes_survive(tmp_path: Path) -> None:
    folder = write(tmp_path / "bytes")
    raw = b"a\r\nb\r\n\x00\xff no newline"
    (folder / "files/data.bin").write_bytes(raw)
    assert tasks.load(folder)[0].files["data.bin"] == raw


def test_compiled_files_beside_the_tests_are_ignored(tmp_path: Path) -> None:
    folder = write(tmp_path / "cached")
    (folder / "hidden/__pycache__").mkdir()
    (folder / "hidden/__pycache__/test_m.cpython-311.pyc").write_bytes(b"x")
    assert set(tasks.load(folder)[0].hidden) == {"test_m.py"}


def test_near_misses_are_named() -> None:
    with pytest.raises(TaskNotFoundError, match=r"near: .*swe/tiny/clamp/upper-bound"):
        tasks.load("swe/tiny/clamp/upper-bond")
    with pytest.raises(TaskNotFoundError, match="splits there: test, train"):
        tasks.load("swe/tiny/*", split="dev")


def test_slices_lists_and_ids() -> None:
    every = tasks.load("swe/tiny/*")
    assert every[:3].ids == every.ids[:3]
    assert every[every.ids[5]].id == every[5].id == every.ids[5]
    assert tasks.load([every[1], "swe/tiny/clamp/upper-bound"]).ids == (every.ids[1], "swe/tiny/clamp/upper-bound")
    assert every.ids[2] in every
    assert "swe/tiny/none" not in every
    assert tasks.load("swe/tiny/clamp").ids == tasks.load("swe/tiny/clamp/*").ids


def test_a_pattern_of_paths_selects_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "mine/one")
    write(tmp_path / "mine/two")
    write_family(tmp_path / "mine/deep/three")
    monkeypatch.chdir(tmp_path)
    assert tasks.load("mine/*").ids == ("deep/three/a", "deep/three/b", "one", "two")
    assert tasks.load("mine/t*").ids == tasks.load("./mine/two*").ids == ("two",)
    assert tasks.load(f"{tmp_path}/mine/*/three").ids == ("deep/three/a", "deep/three/b")
    with pytest.raises(TaskNotFoundError, match="no task"):
        tasks.load("mine/x*")


def test_two_tasks_of_one_id_are_refused(tmp_path: Path) -> None:
    same = GOOD + "id: same\n"
    write(tmp_path / "one", same)
    write(tmp_path / "two", same)
    with pytest.raises(TaskFormatError, match="two tasks have the id 'same'"):
        tasks.load(tmp_path)


ORDER = """
from forkgym import tasks
found = tasks.load("swe/tiny/*")
print(found.shuffled(7).ids[:5], found.sample(7).id, found.sample(8).id, found[0].digest)
"""


def test_order_depends_on_the_seed_alone() -> None:
    """H03: the same draw in processes of different hash seeds."""
    drawn = {
        subprocess.run(
            [sys.executable, "-c", ORDER], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(drawn) == 1
    every = tasks.load("swe/tiny/*")
    assert every.shuffled(7).ids != every.shuffled(8).ids
    assert sorted(every.shuffled(7).ids) == sorted(every.ids)


def test_the_digest_follows_what_is_judged_only(tmp_path: Path) -> None:
    first = tasks.load(write(tmp_path / "a"))[0].digest
    renamed = tasks.load(write(tmp_path / "b", GOOD.replace("this test", "that test")))[0].digest
    assert first == renamed
    for index, change in enumerate([("timeout: 5", "timeout: 6"), ("Fix m.py.", "Mend m.py."), ("T.test_one", "T.x")]):
        assert tasks.load(write(tmp_path / f"c{index}", GOOD.replace(*change)))[0].digest != first
    folder = write(tmp_path / "d")
    (folder / "hidden/test_m.py").write_text("import m \n")
    assert tasks.load(folder)[0].digest != first
    bounded = {tasks.load(write(tmp_path / f"e{n}", GOOD + f"limits: {{wall: {n}}}\n"))[0].digest for n in (60, 61)}
    assert len(bounded | {first}) == 3


def test_an_empty_split_of_a_task_shows_nothing_of_it() -> None:
    task = tasks.load("swe/tiny/clamp/upper-bound")[0]
    with pytest.raises(TaskNotFoundError, match=r"^no task of 'swe/tiny/clamp/upper-bound' is in the split 'x'"):
        tasks.load(task, split="x")
    with pytest.raises(TaskNotFoundError, match=r"^no task of those given is in the split 'x'"):
        tasks.load([task], split="x")
