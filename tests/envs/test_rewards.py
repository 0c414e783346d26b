"""From what an episode shows to its reward."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from forkgym.envs import rewards
from forkgym.envs.base import Call, Evidence
from forkgym.errors import ConfigError
from forkgym.tasks.base import FileChange, Finding, Grading, Submission, Task, Verdict
from forkgym.tasks.errors import GradingError

BASE = b"import os\n\n\ndef half(x):\n    return x / 3\n"
GOLD = BASE.replace(b"/ 3", b"/ 2")
TASK = Task(
    id="t",
    family="swe",
    instruction="",
    split="train",
    files={"half.py": BASE, "README.md": b"half\n"},
    hidden={},
    oracle={"half.py": GOLD},
    grading=Grading("unittest", ("a",)),
)
HALF = Verdict(score=0.5, resolved=False, stage="unresolved", components={"tests": 0.75})
FULL = Verdict(score=1.0, resolved=True, stage="resolved")
BROKEN = Verdict(score=None, resolved=False, stage="error", error="no report")


def shown(verdict: Verdict, *calls: Call, malformed: str = "", **changes: bytes | None) -> Evidence:
    """Evidence of a submission; the file ``half_py`` is half.py, others are Markdown."""
    paths = {name.replace("_py", ".py").replace("_md", ".md"): FileChange(data) for name, data in changes.items()}
    return Evidence(verdict, TASK, Submission(paths, malformed=malformed), calls)


def value(reward: Any, evidence: Evidence) -> float:
    return rewards.apply(rewards.build(reward), evidence)[0]


def bash(command: str) -> Call:
    return Call("bash", {"command": command}, "")


def test_rewards_of_the_verdict():
    assert [value("resolved", shown(v)) for v in (HALF, FULL)] == [0.0, 1.0]
    assert [value("score", shown(v)) for v in (HALF, FULL)] == [0.5, 1.0]
    assert [value("tests", shown(v)) for v in (HALF, FULL)] == [0.75, 1.0]
    assert value("forkgym.envs.rewards:score", shown(HALF)) == 0.5
    assert value(lambda evidence: -1, shown(FULL)) == -1.0
    with pytest.raises(ConfigError, match="did you mean 'resolved'"):
        rewards.build("resolve")


def test_fixed_and_kept_go_by_the_proof():
    findings = tuple(Finding(name, passed) for name, passed in (("a", True), ("b", False), ("c", True)))
    verdict = replace(HALF, findings=findings)
    proven = replace(TASK, proof={"fail_to_pass": ["a", "b"]})
    evidence = replace(shown(verdict), task=proven)
    assert (value("fixed", evidence), value("kept", evidence)) == (0.5, 1.0)
    forged = replace(evidence, verdict=replace(verdict, hacks=("forged",)))
    assert (value("fixed", forged), value("kept", forged)) == (0.0, 0.0)
    nothing = (*findings, Finding("run", False, weight=0.0, message="exit code 0 contradicts the records"))
    disproved = replace(evidence, verdict=replace(verdict, findings=nothing))
    assert (value("fixed", disproved), value("kept", disproved)) == (0.0, 0.0)
    all_broken = replace(evidence, task=replace(TASK, proof={"fail_to_pass": ["a", "b", "c"]}))
    assert (value("fixed", all_broken), value("kept", all_broken)) == (pytest.approx(2 / 3), 1.0)
    with pytest.raises(GradingError, match="verify --write"):
        value("fixed", shown(verdict))


@pytest.mark.parametrize(
    ("changes", "minimal", "focused"),
    [
        ({}, 0.0, 0.0),
        ({"half_py": GOLD}, 1.0, 1.0),
        # Two lines changed, where the solution changes one: 2 of 4 counted lines.
        ({"half_py": GOLD.replace(b"import os\n", b"import sys\n")}, 0.5, 1.0),
        ({"half_py": GOLD, "notes_md": b"1\n2\n"}, 0.5, 0.5),
        ({"half_py": GOLD, "logo_md": b"\0\1"}, 2 / 3, 0.5),
        # A NUL in what was text makes no single line of it: six lines come, and five go.
        ({"half_py": b"\0\n" * 6}, 2 / 11, 1.0),
        ({"half_py": None}, 2 / 5, 1.0),
        ({"half_py": BASE.replace(b"    return x / 3\n", b"")}, 1.0, 1.0),
    ],
)
def test_rewards_of_the_patch(changes, minimal, focused):
    evidence = shown(HALF, **changes)
    assert value("minimal", evidence) == pytest.approx(minimal)
    assert value("focused", evidence) == focused
    assert value("applies", evidence) == float(bool(changes))


def test_a_malformed_patch_earns_nothing_by_its_looks():
    evidence = shown(HALF, malformed="too large")
    assert [value(name, evidence) for name in ("applies", "minimal", "focused", "lint")] == [0.0] * 4


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, 0.0),
        ({"half_py": GOLD}, 1.0),  # the unused import was there before
        ({"half_py": GOLD.replace(b"import os\n", b"")}, 1.0),
        ({"half_py": GOLD.replace(b"import os\n", b"import os, sys\n")}, 0.0),
        ({"half_py": GOLD, "new_py": b"import sys\n"}, 0.5),
        ({"half_py": b"def half(x:\n"}, 0.0),
        ({"notes_md": b"import sys\n"}, 1.0),
        ({"half_py": None}, 1.0),
        ({"half_py": GOLD, "new_py": b"# ruff: noqa\nimport sys  # noqa: F401\n"}, 0.5),
    ],
)
def test_lint_counts_new_findings_only(changes, expected):
    assert value("lint", shown(HALF, **changes)) == expected


@pytest.mark.parametrize(
    ("commands", "reproduced", "tested"),
    [
        ([], 0.0, 0.0),
        (["python3 -c 'import half; print(half.half(2))'", "sed -i s/3/2/ half.py", "python3 -m pytest -q"], 1.0, 1.0),
        (["sed -i s/3/2/ half.py", "python3 -m unittest"], 0.0, 1.0),
        (["cat half.py", "echo x > half.py"], 0.0, 0.0),
        (["pytest", "cat half.py"], 1.0, 0.0),
        (["pytest 2>&1 | tail", "sed -i s/3/2/ half.py", "npm test", "git checkout half.py"], 1.0, 0.0),
        (["go test ./...", "tee half.go", "go test ./..."], 1.0, 1.0),
    ],
)
def test_rewards_of_the_way(commands, reproduced, tested):
    evidence = shown(HALF, *map(bash, commands))
    assert (value("reproduced", evidence), value("tested", evidence)) == (reproduced, tested)


def test_an_edit_is_a_write():
    edit = Call("edit", {"command": "create"}, "")
    assert value("reproduced", shown(HALF, edit, bash("pytest"))) == 0.0
    assert value("tested", shown(HALF, bash("pytest"), edit)) == 0.0


def test_weights_add_up_and_the_gate_multiplies():
    spec = {"weights": {"resolved": 1, "minimal": 0.2, "focused": -0.1}}
    assert rewards.apply(rewards.build(spec), shown(FULL, half_py=GOLD)) == (
        pytest.approx(1.1),
        {"resolved": 1.0, "minimal": 1.0, "focused": 1.0},
    )
    gated = {**spec, "gate": "tests"}
    assert value(gated, shown(HALF, half_py=GOLD)) == pytest.approx(0.75 * 0.1)
    assert value(gated, shown(FULL)) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"weights": {}}, "empty"),
        ({"weights": {"resolved": math.nan}}, "finite number"),
        ({"weights": {"resolved": "1"}}, "finite number"),
        ({"weights": {"resolvd": 1}}, "did you mean 'resolved'"),
        ({"weights": {"resolved": 1}, "gat": "tests"}, "did you mean 'gate'"),
        ({"weight": {"resolved": 1}}, "did you mean 'weights'"),
        ({"gate": "tests"}, "weights"),
        (3, "got 3"),
    ],
)
def test_a_wrong_reward_is_refused_before_anything_starts(spec, words):
    with pytest.raises(ConfigError, match=words):
        rewards.build(spec)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_reward_is_finite(number):
    with pytest.raises(GradingError, match="not finite"):
        value(lambda evidence: number, shown(FULL))


def test_text_is_no_reward():
    with pytest.raises(GradingError, match="which is no number"):
        value(lambda evidence: "1.0", shown(FULL))


def test_an_unscored_verdict_has_no_reward():
    with pytest.raises(GradingError, match="no report"):
        value("resolved", shown(BROKEN))
    with pytest.raises(GradingError, match="no report"):
        rewards.score(shown(BROKEN))


def test_an_episode_is_paid_by_parts(make):
    env = make(reward={"weights": {"resolved": 1.0, "reproduced": 0.25}})
    env.reset(seed=1, options={"task": env.tasks.ids[0]})
    env.step({"tool": "bash", "arguments": {"command": "python3 -c 'print(1)'"}})
    _, reward, *_, info = env.step({"tool": "submit", "arguments": {}})
    assert reward == info["reward"] == 0.25
    assert info["reward_parts"] == {"resolved": 0.0, "reproduced": 1.0}
