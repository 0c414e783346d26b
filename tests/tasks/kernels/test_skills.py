"""Skills: only what is measured again comes in; the right one is found; nothing comes back to its own task."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from forkgym.tasks.base import Task
from forkgym.tasks.errors import TaskFormatError
from forkgym.tasks.kernels.skills import Skill, SkillLibrary, bm25
from forkgym.tasks.submission import of_files
from forkgym.tasks.workspace import Bases

Windows = Callable[..., Task]


def test_bm25_of_two_texts_by_hand() -> None:
    """Two words each, so lengths do not matter; "loop" stands in both, "tile" in one of two."""
    rare, common = math.log(1 + 1.5 / 1.5), math.log(1 + 0.5 / 2.5)
    once = 2.5 / 2.5
    assert bm25("Tile the loop!", ["tile loop", "loop unroll"]) == pytest.approx(
        [(rare + common) * once, common * once]
    )
    assert bm25("nothing", ["tile loop"]) == [0.0]
    assert bm25("tile", []) == []


def test_a_skill_comes_in_by_a_gain_that_is_measured_again(
    windows: Windows, fast: str, bases: Bases, tmp_path: Path
) -> None:
    library = SkillLibrary(tmp_path / "skills.jsonl")
    task = windows()
    skill, problem = library.offer(
        "sums over a window", "keep a running sum", task, of_files({"kern.c": fast.encode()}), bases, 2
    )
    assert problem == ""
    assert skill is not None
    assert skill.gain > 5
    assert (skill.task, skill.digest, skill.measured) == (task.id, task.digest, 2)
    assert SkillLibrary(tmp_path / "skills.jsonl").skills == (skill,)
    again = library.offer("sums over a window", "keep a running sum", task, of_files({}), bases)
    assert again == (None, "it is known already")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("", ""), "1.1 is asked for"),
        (("out[i] = sum;", "out[i] = 2 * sum;"), "it is wrong"),
        (("double sum = 0;", "double sum = 0; ((float*)x)[0] = 1;"), "it is"),
    ],
)
def test_what_is_no_faster_wrong_or_dishonest_stays_out(
    windows: Windows, slow: str, bases: Bases, tmp_path: Path, change: tuple[str, str], says: str
) -> None:
    library = SkillLibrary(tmp_path / "skills.jsonl")
    text = slow.replace(*change) if change[0] else slow
    skill, problem = library.offer("windows", "do it so", windows(), of_files({"kern.c": text.encode()}), bases)
    assert skill is None
    assert says in problem
    assert library.skills == ()
    assert not library.path.exists()


def test_skills_come_from_training_tasks_and_never_go_back_to_their_own(
    windows: Windows, bases: Bases, tmp_path: Path
) -> None:
    path = tmp_path / "skills.jsonl"
    task = replace(windows(), instruction="add up the columns of a matrix")
    with pytest.raises(ValueError, match="training tasks only"):
        SkillLibrary(path).offer("a", "b", replace(task, split="test"), of_files({}), bases)
    with pytest.raises(ValueError, match="at least 2"):
        SkillLibrary(path).offer("a", "b", task, of_files({}), bases, repeats=1)
    library = SkillLibrary(path)
    library._append(Skill("columns of a matrix", "rows outside", task.id, task.digest, 9.0, 3))
    library._append(Skill("a matrix by columns", "interchange the loops", "other", "0" * 64, 4.0, 3))
    library._append(Skill("text search", "compare many places", "third", "1" * 64, 60.0, 3))
    assert [skill.task for skill in library.find("columns of a matrix")] == [task.id, "other"]
    assert library.as_prompt(task).splitlines()[1:] == [
        "- a matrix by columns: interchange the loops (measured: 4.00 times as fast)"
    ]
    assert library.as_prompt(replace(task, instruction="xyzzy")) == ""


def test_a_broken_file_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "skills.jsonl"
    path.write_text('{"when": 1}\n')
    with pytest.raises(TaskFormatError, match=r"skills.jsonl, line 1"):
        SkillLibrary(path)
