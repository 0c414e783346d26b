"""Forks and snapshots of a running episode, and the privileged view."""

from typing import Any

import pytest

from forkgym.envs.formats import TextActions
from forkgym.sandboxes.errors import SnapshotError


def read(env, name="calc.py"):
    return env.box.read_file(f"/work/{name}")


def test_forks_continue_from_the_same_point_and_are_independent(make, calc):
    env = make(max_turns=5)
    env.reset(seed=3)
    env.step(calc.bash("export WHO=parent; cd /tmp"))
    env.charge_tokens(4)
    spent = env.usage()["seconds"]
    first, second = env.fork(2)
    try:
        for branch, action in ((first, calc.fix_add), (second, calc.fix_double)):
            observation, *_, info = branch.step(calc.bash("echo $WHO; pwd; cd /work"))
            assert observation["text"] == "parent\n/tmp\n"
            assert (info["turn"], info["tokens"], info["task"], info["seed"]) == (2, 4, "test/calc", 3)
            assert branch.usage()["seconds"] > spent
            assert branch.lineage == ((env.box.id, 1),)
            branch.step(action)
        assert read(env) == calc.broken
        assert read(first) == calc.broken.replace(b"a - b", b"a + b")
        assert read(second) == calc.broken.replace(b"a + 2", b"a * 2")
        assert env.step(calc.bash("pwd"))[0]["text"] == "/tmp\n"
        grandchild = first.fork()[0]
        assert [turn for _, turn in grandchild.lineage] == [1, 3]
        grandchild.close()
        env.close()
        _, reward, terminated, _, _ = first.step(calc.submit)
        assert (reward, terminated) == (0.0, True)
        assert second.outcome is None
    finally:
        first.close()
        second.close()


def test_forks_copy_the_generator_and_the_spaces(make, calc):
    env = make(*(calc.task(f"t{i}") for i in range(20)))
    env.reset(seed=3)
    env.action_space.seed(9)
    (branch,) = env.fork()
    assert branch.action_space is not env.action_space
    assert [branch.action_space.sample() for _ in range(3)] == [env.action_space.sample() for _ in range(3)]
    drawn = [branch.reset()[1]["task"] for _ in range(3)]
    branch.close()
    assert [env.reset()[1]["task"] for _ in range(3)] == drawn


def test_forks_copy_undo_history(make, calc):
    env = make()
    env.reset(seed=1)
    change = {"command": "str_replace", "path": "calc.py", "old_str": "a - b", "new_str": "a + b"}
    undo = {"tool": "edit", "arguments": {"command": "undo", "path": "calc.py"}}
    env.step({"tool": "edit", "arguments": change})
    (branch,) = env.fork()
    branch.step(undo)
    assert read(branch) == calc.broken
    assert branch.step(undo)[4]["tool_error"] is True
    branch.close()
    assert b"a + b" in read(env)
    assert env.step(undo)[4]["tool_error"] is False
    assert read(env) == calc.broken


def test_snapshot_and_restore(make, calc):
    env = make(*(calc.task(f"t{i}") for i in range(20)))
    env.reset(seed=1)
    env.step(calc.bash("export A=1; echo one > note"))
    task, saved = env.task.id, env.snapshot("start")
    following = env.reset()[1]["task"]
    for _ in range(2):
        env.restore(saved)
        assert env.task.id == task
        assert len(env.transcript) == 3
        observation, *_, info = env.step(calc.bash("cat note; echo $A; rm note"))
        assert observation["text"] == "one\n1\n"
        assert info["turn"] == 2
        assert env.reset()[1]["task"] == following


def test_restore_brings_an_ended_episode_back(make, calc):
    env = make()
    env.reset(seed=1)
    env.step(calc.fix_add)
    saved = env.snapshot()
    assert env.step(calc.submit)[1] == 0.0
    env.restore(saved)
    assert env.outcome is None
    env.step(calc.fix_double)
    assert env.step(calc.submit)[1] == 1.0


def test_unknown_and_removed_snapshots(make, calc):
    env = make()
    env.reset(seed=1)
    with pytest.raises(SnapshotError, match="no snapshot 'nope'"):
        env.restore("nope")
    saved = env.snapshot()
    (branch,) = env.fork()
    env.close()
    with pytest.raises(SnapshotError):
        branch.restore(saved)
    assert branch.step(calc.bash("true"))[3] is False
    own = branch.snapshot()
    branch.discard(own)
    branch.discard(own)
    with pytest.raises(SnapshotError):
        branch.restore(own)
    branch.close()


def test_privileged_tells_the_hidden_state(make, calc):
    env = make()
    env.reset(seed=1)
    start = env.privileged()
    env.step(calc.fix_add)
    middle = env.privileged()
    env.step(calc.fix_double)
    end = env.privileged()
    assert [len(view["passed"]) for view in (start, middle, end)] == [2, 3, 4]
    assert middle["failed"] == ["test_calc.TestCalc.test_double"]
    assert (middle["fraction"], middle["score"], middle["resolved"]) == (0.75, 0.0, False)
    assert (end["fraction"], end["score"], end["resolved"]) == (1.0, 1.0, True)
    assert [view["files_changed"] for view in (start, middle, end)] == [0, 1, 1]
    # calc.py has 36 tokens on either side; each bug is one token that differs.
    assert start["gold_distance"] == pytest.approx(2 * middle["gold_distance"])
    assert middle["gold_distance"] > end["gold_distance"] == 0.0


def test_text_actions_forks_with_its_format(make):
    env: Any = TextActions(make())
    env.reset(seed=1)
    assert env.step("```bash\ncat README.md\n```")[0]["text"] == "Arithmetic.\n"
    observation, *_, info = env.step("I do not know.")
    assert "Found no bash block" in observation["text"]
    assert (info["turn"], info["tool_error"]) == (2, True)
    assert "not text" in env.step(3)[0]["text"]
    assert "not text" in env.step("\ud800")[0]["text"]
    (branch,) = env.fork(1)
    _, _, terminated, _, info = branch.step("```bash\nsubmit\n```")
    assert (terminated, info["turn"]) == (True, 5)
    branch.close()
    assert env.unwrapped.outcome is None
