from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from forkgym.agents.base import Episode, SamplingParams
from forkgym.agents.loops import recording
from forkgym.agents.records import decode_episode, encode_episode
from forkgym.agents.registry import make_agent
from forkgym.agents.rescore import Rescorer
from forkgym.errors import ConfigError
from forkgym.tasks.submission import digest, from_json

STRICT = b"""import unittest
from clamp import clamp

class TestClamp(unittest.TestCase):
    def test_above(self):
        self.assertEqual(clamp(15, 0, 10), 11)

    def test_inside(self):
        self.assertEqual(clamp(4, 0, 10), 4)
"""


def play(env: Any, agent: str = "oracle", seed: int = 1) -> Episode:
    record = make_agent(agent).run(
        env, None, task="test/clamp", seed=seed, sampling=SamplingParams(), episode="e", group="g"
    )
    return decode_episode(encode_episode(record))


@pytest.fixture
def strict(make_task):
    """The same task with a hidden test that the reference solution does not pass."""
    return dataclasses.replace(make_task(), hidden={"test_clamp.py": STRICT})


def test_the_record_holds_what_was_submitted(make_env) -> None:
    episode = play(make_env())
    submission = from_json(episode.submission)
    assert set(submission.changes) == {"clamp.py"}
    assert b"return high\n" in (submission.changes["clamp.py"].data or b"")
    assert episode.tree == digest(submission) != play(make_env(), "nop").tree


def test_a_corrected_test_changes_the_reward_and_nothing_else(make_env, make_task, strict) -> None:
    episode = play(make_env())
    same = Rescorer([make_task()])(episode)
    assert (same.how, same.changed, same.after.reward) == ("submission", False, 1.0)
    worse = Rescorer([strict])(episode)
    assert (worse.how, worse.changed, worse.after.reward) == ("submission", True, 0.0)
    assert worse.after.verdict is not None
    assert [(f["id"][-5:], f["passed"]) for f in worse.after.verdict["findings"]] == [("above", False), ("nside", True)]
    assert dataclasses.replace(worse.after, verdict=episode.verdict, reward=1.0) == episode


def test_another_reward_brings_its_parts(make_env, make_task, strict) -> None:
    reward = {"weights": {"resolved": 1, "tests": 0.5}}
    after = Rescorer([strict], reward=reward)(play(make_env())).after
    assert after.reward == 0.25  # 1 × 0 resolved + 0.5 × one of two tests
    assert (after.metrics["reward/resolved"], after.metrics["reward/tests"]) == (0.0, 0.5)


def test_without_a_submission_the_actions_are_played_again(make_env, make_task, strict, monkeypatch) -> None:
    monkeypatch.setattr(recording, "MAX_SUBMISSION_CHARS", 10)
    episode = play(make_env())
    assert episode.submission is None
    assert episode.tree
    old = dataclasses.replace(episode, tree="")
    for record in (episode, old):
        result = Rescorer([strict])(record)
        assert (result.how, result.changed, result.after.reward) == ("replay", True, 0.0)
    parted = dataclasses.replace(old.steps[0], observation="something else")
    other = dataclasses.replace(old, steps=[parted, *old.steps[1:]])
    left = Rescorer([strict])(other)
    assert (left.how, left.changed) == ("left", False)
    assert left.why == "it holds no submission, and its replay differs at turn 0 (observation)"


def test_an_episode_whose_grader_failed_is_scored_now(make_env, make_task) -> None:
    def broken(evidence: Any) -> float:
        raise ValueError("a bug in the reward")

    episode = play(make_env(reward=broken))
    assert (episode.status, episode.reason, episode.reward) == ("failed", "grader", None)
    assert episode.submission is not None
    assert episode.ending == ("finished", "submitted")
    after = Rescorer([make_task()])(episode).after
    assert (after.status, after.reason, after.reward, after.detail) == ("finished", "submitted", 1.0, "")
    encode_episode(after)
    cut = play(make_env(reward=broken, max_turns=1))
    assert (cut.status, cut.reason, cut.ending) == ("failed", "grader", ("truncated", "turns"))
    after = Rescorer([make_task()])(cut).after
    assert (after.status, after.reason, after.reward, after.ending) == ("truncated", "turns", 1.0, None)


@pytest.mark.parametrize(
    ("status", "reason"), [("cancelled", "cancelled"), ("failed", "sandbox"), ("failed", "grader")]
)
def test_an_episode_without_an_end_is_left(make_env, make_task, status: Any, reason: str) -> None:
    episode = dataclasses.replace(play(make_env()), status=status, reason=reason, reward=None, submission=None)
    result = Rescorer([make_task()])(episode)
    assert (result.how, result.changed, result.after) == ("left", False, episode)


def test_a_grader_that_fails_now_leaves_the_old_reward(make_env, make_task) -> None:
    def broken(evidence: Any) -> float:
        return float("nan")

    result = Rescorer([make_task()], reward=broken)(play(make_env()))
    assert (result.how, result.after.reward) == ("left", 1.0)
    assert "not finite" in result.why


def test_a_task_that_is_not_there_is_refused(make_env, make_task) -> None:
    with pytest.raises(ConfigError, match="test/clamp"):
        Rescorer([make_task("other")])(play(make_env()))


def test_random_agent_repeats_by_seed_and_is_graded(make_env) -> None:
    first, again, other = (play(make_env(max_turns=4), "random", seed) for seed in (5, 5, 6))
    assert (first.harness, first.reward) == ("random", 0.0)
    assert [s.action for s in first.steps] == [s.action for s in again.steps] != [s.action for s in other.steps]
    assert [s.observation for s in first.steps] == [s.observation for s in again.steps]
    space = make_env().action_space
    assert all(space.contains(json.loads(json.dumps(s.action))) for s in [*first.steps, *other.steps])
