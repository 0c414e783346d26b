"""Rewards of Harbor tasks: what counts, what proves nothing, and what a submission cannot do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from forkgym import tasks
from forkgym.tasks.base import Task, Verdict
from forkgym.tasks.errors import TaskFormatError
from forkgym.tasks.grading import grade
from forkgym.tasks.submission import capture, of_files
from forkgym.tasks.workspace import Bases

Make = Callable[..., Path]
Graded = Callable[..., Verdict]
ANSWER: dict[str, bytes | None] = {"out/greet.txt": b"HELLO\n"}
REWARD, JSON = "/logs/verifier/reward.txt", "/logs/verifier/reward.json"


@pytest.fixture
def graded(make: Make, bases: Bases) -> Graded:
    """``graded(script, files)``: the verdict of a task with this tests/test.sh on these files."""

    def run(script: str | None = None, files: dict[str, bytes | None] = ANSWER, **options: Any) -> Verdict:
        changes = {} if script is None else {"tests/test.sh": f"#!/bin/bash\n{script}\n"}
        task: Task = tasks.from_harbor(make(changes, **options), image="host")[0]
        return grade(task, of_files(files), bases.box)

    return run


def test_a_reward_of_one_is_resolved(graded: Graded) -> None:
    verdict = graded()
    assert (verdict.score, verdict.resolved, verdict.stage) == (1.0, True, "resolved")
    wrong = graded(files={"out/greet.txt": b"hi\n"})
    assert (wrong.score, wrong.resolved, wrong.stage) == (0.0, False, "unresolved")


def test_a_reward_between_is_the_score(graded: Graded) -> None:
    verdict = graded(f"echo 0.25 > {REWARD}")
    assert (verdict.score, verdict.resolved, verdict.stage) == (0.25, False, "unresolved")
    assert verdict.components["reward"] == 0.25


@pytest.mark.parametrize(
    ("text", "score"),
    [('{"reward": 0.5, "style": 7}', 0.5), ('{"accuracy": 1}', 1.0), ("0.75", 0.75), ('{"reward": true}', 1.0)],
)
def test_named_rewards_come_before_the_text(graded: Graded, text: str, score: float) -> None:
    verdict = graded(f"echo 0 > {REWARD}; echo '{text}' > {JSON}")
    assert verdict.score == score


def test_named_rewards_are_components(graded: Graded) -> None:
    verdict = graded(f'echo \'{{"reward": 0.5, "style": 7}}\' > {JSON}')
    assert verdict.components == {"reward": 0.5, "style": 7.0, "tests": 0.0}


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("exit 3", "no reward was written (tests/test.sh: exit code 3)"),
        ("echo it broke; exit 1", "exit code 1): it broke"),
        (f": > {REWARD}", "reward.txt holds no number: ''"),
        (f"echo nan > {REWARD}", "reward 'reward' is nan, no finite number"),
        (f"echo 1e999 > {REWARD}", "reward 'reward' is inf, no finite number"),
        (f"echo 17 > {REWARD}", "the reward is 17, and a score lies in [0, 1]"),
        (f"echo -1 > {REWARD}", "the reward is -1, and a score lies in [0, 1]"),
        (f"echo '{{' > {JSON}; echo 1 > {REWARD}", "reward.json is not JSON"),
        (f'echo \'{{"reward": "1"}}\' > {JSON}', "reward 'reward' is '1', no finite number"),
        (f'echo \'{{"a": 1, "b": 1}}\' > {JSON}', "reward.json does not name 'reward', but 'a', 'b'"),
        (f"echo '{{}}' > {JSON}", "reward.json does not name 'reward', but none"),
        (f"mkdir {REWARD}", "reward.txt cannot be read"),
        (f"mkfifo {REWARD}", "reward.txt cannot be read"),
        (f"head -c 200000 /dev/zero > {REWARD}", "reward.txt holds more than 65536 bytes"),
    ],
)
def test_what_is_no_reward_proves_nothing(graded: Graded, script: str, message: str) -> None:
    verdict = graded(script)
    assert (verdict.score, verdict.resolved, verdict.stage) == (0.0, False, "unresolved")
    assert message in verdict.findings[-1].message


def test_out_of_time(make: Make, bases: Bases) -> None:
    text = 'schema_version = "1.4"\n[verifier]\ntimeout_sec = 1\n'
    root = make({"task.toml": text, "tests/test.sh": f"#!/bin/sh\necho 1 > {REWARD}; sleep 30\n"})
    verdict = grade(tasks.from_harbor(root, image="host")[0], of_files(ANSWER), bases.box)
    assert (verdict.score, verdict.stage) == (0.0, "timeout")


def test_a_reward_that_the_agent_wrote_is_not_there(make: Make, bases: Bases) -> None:
    """The agent's machine is never the one that grades."""
    task = tasks.from_harbor(make({"tests/test.sh": "#!/bin/sh\nls /logs/verifier | wc -l\n"}), image="host")[0]
    with bases.box(task) as box:
        assert box.exec(f"mkdir -p /logs/verifier && echo 1 > {REWARD} && echo HELLO > out/greet.txt").ok
        with box.fork(1)[0] as quiet:
            submission = capture(quiet, task, bases.tree(task))
    verdict = grade(task, submission, bases.box)
    assert (verdict.score, verdict.findings[-1].message) == (
        0.0,
        "no reward was written (tests/test.sh: exit code 0): 1",
    )


def test_a_writer_left_behind_by_the_tests_comes_too_late(graded: Graded, bases: Bases) -> None:
    late = f"(setsid sh -c 'sleep 2; echo 1 > {REWARD}' &)\necho 0 > {REWARD}"
    assert graded(late).score == 0.0


def test_only_artifacts_reach_tests_of_their_own(make: Make, bases: Bases) -> None:
    text = 'schema_version = "1.4"\nartifacts = ["/app/out"]\n[verifier]\nenvironment_mode = "separate"\n'
    check = f"#!/bin/bash\n[ -e /app/out/greet.txt ] && [ ! -e /app/conftest.py ] && echo 1 > {REWARD}\n"
    task = tasks.from_harbor(make({"task.toml": text, "tests/test.sh": check}), image="host")[0]
    verdict = grade(task, of_files({**ANSWER, "conftest.py": b"x", "outside": b"y"}), bases.box)
    assert verdict.score == 1.0
    assert verdict.provenance["dropped"] == {
        "conftest.py": "below no artifact of the task", "outside": "below no artifact of the task",
    }  # fmt: skip


def test_build_products_are_work(make: Make, bases: Bases) -> None:
    """Where a task asks for a program, the program counts: unlike in a repository, where it is left out."""
    task = tasks.from_harbor(make(), image="host")[0]
    with bases.box(task) as box:
        assert box.exec("cp /bin/true out/prog").ok
        with box.fork(1)[0] as quiet:
            found = capture(quiet, task, bases.tree(task))
    assert set(found.changes) == {"out/prog"}
    assert not found.left_out


def test_unknown_options_are_named(make: Make, bases: Bases) -> None:
    task = tasks.from_harbor(make(), image="host")[0]
    broken = replace(task, grading=replace(task.grading, options={"artefacts": []}))
    with pytest.raises(TaskFormatError, match=r"grading.options: unknown key 'artefacts'; known: env, artifacts"):
        grade(broken, of_files(ANSWER), bases.box)
