"""GiGPO on episodes: turns of a group that began with the same observation are compared (fixture F9)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from forkgym.agents.base import Episode, Step
from forkgym.trainers.batch import build_batch, group_of_members, spread_to_tokens
from forkgym.trainers.errors import TrainerError
from forkgym.trainers.grpo import group_advantage
from forkgym.trainers.loss_sections import AdvantageSection
from forkgym.trainers.turns import anchored

MakeEpisode = Callable[..., Episode]
TURNS = [([1], [2, 3]), ([4], [5])]


def seen(episode: Episode, *observations: str) -> Episode:
    episode.steps = [Step(turn, "", {}, text, 0.0, 0.0) for turn, text in enumerate(observations)]
    return episode


def test_f9_two_turns_each_that_part_after_the_first(make_episode: MakeEpisode) -> None:
    episodes = [
        seen(make_episode("t1", [TURNS], reward=1.0), "s1", "end"),
        seen(make_episode("t2", [TURNS], reward=0.0), "s2", "end"),
    ]
    batch, section = build_batch(episodes), AdvantageSection(estimator="gigpo")
    of_turns = anchored(batch, episodes, section)
    assert of_turns[batch.mask].tolist() == pytest.approx([0.475, 0.475, 0.0, -0.475, -0.475, 0.0])
    each = group_advantage(
        batch.reward, group_of_members(batch), baseline="mean", std="none", eps=0.0, tolerance=section.tolerance
    )
    whole = spread_to_tokens(batch, each) + of_turns
    assert whole[batch.mask].tolist() == pytest.approx([0.975, 0.975, 0.5, -0.975, -0.975, -0.5])


def test_a_state_that_two_episodes_meet_at_different_turns(make_episode: MakeEpisode) -> None:
    late = [([1], [2]), ([4], [5]), ([4], [6])]
    episodes = [
        seen(make_episode("quick", [TURNS], reward=1.0), "door", "end"),
        seen(make_episode("slow", [late], reward=1.0), "wall", "door", "end"),
        seen(make_episode("other", [TURNS], reward=0.0, group="elsewhere"), "door", "end"),
    ]
    batch = build_batch(episodes)
    found = anchored(batch, episodes, AdvantageSection(estimator="gigpo", gamma=0.5))
    # Returns: quick 0.5, 1; slow 0.25, 0.5, 1. Both begin alike; at the door both are one turn from the end.
    assert found[batch.mask].tolist() == pytest.approx([0.125, 0.125, 0.0, -0.125, 0.0, 0.0, 0.0, 0.0, 0.0])


def test_an_episode_without_observations_is_refused(make_episode: MakeEpisode) -> None:
    episodes = [make_episode("blind", [TURNS])]
    with pytest.raises(TrainerError, match="'blind' has 2 or more turns but no record of what was observed"):
        anchored(build_batch(episodes), episodes, AdvantageSection(estimator="gigpo"))
