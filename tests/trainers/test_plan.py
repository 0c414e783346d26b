"""The order of tasks and the seeds of episodes are functions of seed and cursor."""

from __future__ import annotations

import pytest

from forkgym.errors import ConfigError
from forkgym.trainers.plan import Slot, TaskOrder, eval_jobs, group_jobs, seed_of

TASKS = [f"t{n}" for n in range(10)]


def test_every_pass_has_each_task_once_in_a_new_order() -> None:
    slots = TaskOrder(TASKS, seed=1).slots(0, 30)
    passes = [[slot.task for slot in slots[n : n + 10]] for n in (0, 10, 20)]
    assert all(sorted(tasks) == TASKS for tasks in passes)
    assert len({tuple(tasks) for tasks in passes}) == 3
    assert [slot.visit for slot in slots] == [0] * 10 + [1] * 10 + [2] * 10


def test_the_order_depends_on_seed_and_cursor_only() -> None:
    whole = TaskOrder(TASKS, seed=1).slots(0, 30)
    assert TaskOrder(list(reversed(TASKS)), seed=1).slots(7, 9) == whole[7:16]
    assert TaskOrder(TASKS, seed=2).slots(0, 30) != whole


def test_members_of_a_group_have_their_own_seeds() -> None:
    jobs = group_jobs([Slot("a", 0), Slot("a", 1)], group_size=3, seed=0)
    assert len({job.seed for job in jobs}) == len({job.id for job in jobs}) == 6
    assert [job.group for job in jobs] == ["a#0"] * 3 + ["a#1"] * 3
    assert jobs == group_jobs([Slot("a", 0)], 3, 0) + group_jobs([Slot("a", 1)], 3, 0)


def test_evaluations_repeat_their_seeds_under_new_ids() -> None:
    first, second = eval_jobs(["a", "b"], 2, 0, step=0), eval_jobs(["a", "b"], 2, 0, step=5)
    assert [job.seed for job in first] == [job.seed for job in second]
    assert not {job.id for job in first} & {job.id for job in second}


def test_seeds_are_stable_across_versions() -> None:
    assert seed_of(0, "train", "a#0", 1) == seed_of(0, "train", "a#0", 1)
    assert 0 <= seed_of("x") < 1 << 31
    assert seed_of("abc") == 0xBA7816BF >> 1


def test_no_task_is_an_error() -> None:
    with pytest.raises(ConfigError, match="no task"):
        TaskOrder([], seed=0)
