"""Batches from episodes: masks, members, exclusions (checks 7, 8, 9, 12) and micro-batches."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from forkgym.agents.base import Episode, SamplingParams
from forkgym.trainers.advantages import group_advantage
from forkgym.trainers.base import Batch
from forkgym.trainers.batch import (
    build_batch,
    group_of_members,
    keep_trainable,
    micro_batches,
    select_rows,
    split_members,
    spread_to_tokens,
)
from forkgym.trainers.errors import NonFiniteError, TrainerError
from forkgym.trainers.kinds import Baseline

MakeEpisode = Callable[..., Episode]


def with_advantage(batch: Batch, baseline: Baseline) -> torch.Tensor:
    values = group_advantage(
        batch.reward,
        group_of_members(batch),
        baseline=baseline,
        std="none",
        eps=0.0,
        tolerance=1e-4,
    )
    return spread_to_tokens(batch, values)


def test_check_12_the_mask_comes_from_what_was_sampled(make_episode: MakeEpisode) -> None:
    eos = 2
    long = make_episode("long", [[([9], [5, 6, eos]), ([7, eos], [8])]])
    short = make_episode("short", [[([eos, 9], [5])]])
    batch = build_batch([long, short])
    assert batch.ids[0].tolist() == [9, 5, 6, eos, 7, eos, 8]
    assert batch.mask.int().tolist() == [[0, 1, 1, 1, 0, 0, 1], [0, 0, 1, 0, 0, 0, 0]]
    assert batch.lengths.tolist() == [7, 3]
    assert batch.behaviour[0].tolist() == [0, -1, -1, -1, 0, 0, -1]
    assert batch.turn[0].tolist() == [0, 0, 0, 0, 1, 1, 1]
    assert batch.version[1].tolist() == [-1, -1, 3, -1, -1, -1, -1]


def test_check_7_segments_are_not_members(make_episode: MakeEpisode) -> None:
    segment = [([1], [4, 5])]
    batch = build_batch([make_episode("a", [segment] * 3, reward=1.0), make_episode("b", [segment], reward=0.0)])
    assert batch.member.tolist() == [0, 0, 0, 1]
    assert with_advantage(batch, "mean")[:, 1].tolist() == [0.5, 0.5, 0.5, -0.5]


def test_check_8_every_row_carries_the_advantage_on_its_own_mask(make_episode: MakeEpisode) -> None:
    batch = build_batch([make_episode("a", [[([1], [4])], [([1, 2], [4, 5])], [([1] * 4, [4] * 5)]])])
    advantage = spread_to_tokens(batch, torch.tensor([1.0]))
    assert advantage.sum(1).tolist() == [1.0, 2.0, 5.0]
    assert torch.equal(advantage > 0, batch.mask)


def test_check_9_leave_one_out_leaves_out_an_episode(make_episode: MakeEpisode) -> None:
    winner = make_episode("a", [[([1], [4])]], reward=1.0)
    loser = make_episode("b", [[([1], [4, 4, 4])]], reward=0.0)
    batch = build_batch([winner, loser])
    assert with_advantage(batch, "loo").tolist() == [[0, 1, 0, 0], [0, -1, -1, -1]]


def test_groups_and_rewards_keep_their_precision(make_episode: MakeEpisode) -> None:
    turns = [[([1], [4])]]
    batch = build_batch([make_episode("a", turns, reward=1 / 3), make_episode("b", turns, reward=0.334, group="h")])
    assert batch.group.tolist() == [0, 1]
    assert batch.reward.dtype == torch.float64
    assert batch.reward.tolist() == [1 / 3, 0.334]


def test_failed_and_cancelled_episodes_are_left_out_and_counted(make_episode: MakeEpisode) -> None:
    turns = [[([1], [4])]]
    good = make_episode("good", turns)
    died = make_episode("died", turns, reward=None, status="failed", reason="sandbox")
    stopped = make_episode("stopped", turns, reward=None, status="cancelled")
    kept = keep_trainable([good, died, stopped, died])
    assert kept.episodes == [good]
    assert kept.left_out == {"failed(sandbox)": 2, "cancelled()": 1}


def test_truncated_episodes_are_scored_or_dropped_as_told(make_episode: MakeEpisode) -> None:
    cut = make_episode("cut", [[([1], [4])]], reward=0.0, status="truncated", reason="turns")
    assert keep_trainable([cut]).episodes == [cut]
    assert build_batch([cut]).truncated.tolist() == [True]
    assert keep_trainable([cut], "drop").left_out == {"truncated(turns)": 1}


def test_an_episode_without_sampled_ids_is_refused(make_episode: MakeEpisode) -> None:
    with pytest.raises(TrainerError, match="'blank' is scored but holds no sampled token"):
        keep_trainable([make_episode("blank", [])])
    overlong = make_episode("overlong", [], reward=0.0, status="truncated", reason="context")
    assert keep_trainable([overlong]).left_out == {"truncated(context) before any token": 1}


def test_a_scored_status_without_reward_is_refused(make_episode: MakeEpisode) -> None:
    with pytest.raises(TrainerError, match="no reward"):
        keep_trainable([make_episode("x", [[([1], [4])]], reward=None)])


def test_damaged_segments_are_refused_by_name(make_episode: MakeEpisode) -> None:
    short = make_episode("short", [[([1], [4])]])
    short.segments[0].logprobs.pop()
    with pytest.raises(TrainerError, match=r"'short'.*differ in length"):
        build_batch([short])
    lost = make_episode("lost", [[([1], [4])]])
    lost.segments[0].logprobs[1] = math.nan
    with pytest.raises(NonFiniteError, match="'lost'"):
        build_batch([lost])
    bare = make_episode("bare", [[([], [4])]])
    with pytest.raises(TrainerError, match=r"'bare'.*no context"):
        build_batch([bare])


@pytest.mark.parametrize(
    ("sampling", "message"),
    [
        ({}, "does not say how it was sampled"),
        ({"temperature": 0.7, "top_p": 1.0, "top_k": 0.0}, r"sampled at temperature 0.7, but is to be trained at 1"),
        ({"temperature": 1.0, "top_p": 0.95, "top_k": 0.0}, "cut by top_p or top_k"),
        ({"temperature": 1.0, "top_p": 1.0, "top_k": 50.0}, "cut by top_p or top_k"),
    ],
)
def test_sampling_that_cannot_be_computed_anew_is_refused(
    make_episode: MakeEpisode, sampling: dict[str, float], message: str
) -> None:
    episode = make_episode("odd", [[([1], [4])]])
    episode.sampling = sampling
    with pytest.raises(TrainerError, match=f"'odd'.*{message}"):
        build_batch([episode], 1.0)
    build_batch([episode])  # not compared: supervised


def test_sampling_as_the_recipe_has_it_is_taken(make_episode: MakeEpisode) -> None:
    episode = make_episode("plain", [[([1], [4])]])
    episode.sampling = SamplingParams(temperature=0.7).shaping
    assert build_batch([episode], 0.7).mask.tolist() == [[False, True]]


def test_no_episode_is_an_empty_batch() -> None:
    batch = build_batch([])
    assert batch.ids.shape == (0, 0)
    assert not batch.mask.any()


def test_selected_rows_are_cropped(make_episode: MakeEpisode) -> None:
    batch = build_batch([make_episode("a", [[([1], [4])]]), make_episode("b", [[([1] * 5, [4])]])])
    part = select_rows(batch, [0])
    assert part.ids.tolist() == [[1, 4]]
    assert part.mask.tolist() == [[False, True]]
    assert part.member.tolist() == [0]
    assert part.episodes == ["a", "b"]


@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=8), max_size=20), st.integers(1, 40))
def test_micro_batches_hold_each_row_once_within_the_budget_of_distinct_prefixes(
    rows: list[list[int]], budget: int
) -> None:
    ids = torch.tensor([row + [0] * (8 - len(row)) for row in rows], dtype=torch.int64).reshape(len(rows), 8)
    lengths = torch.tensor([len(row) for row in rows], dtype=torch.int64)
    parts = micro_batches(ids, lengths, budget)
    assert sorted(row for part in parts for row in part) == list(range(len(rows)))
    for part in parts:
        prefixes = {tuple(rows[row][: n + 1]) for row in part for n in range(len(rows[row]))}
        assert len(part) == 1 or len(prefixes) <= budget


def test_rows_that_begin_alike_go_together() -> None:
    ids = torch.tensor([[1, 1, 1, 2], [5, 5, 5, 2], [1, 1, 1, 3], [5, 5, 5, 3]])
    parts = micro_batches(ids, torch.tensor([4, 4, 4, 4]), 5)
    assert sorted(sorted(part) for part in parts) == [[0, 2], [1, 3]]


def test_members_are_never_split(make_episode: MakeEpisode) -> None:
    segment = [([1], [4])]
    batch = build_batch([make_episode(name, [segment] * 2) for name in "abc"])
    assert [share.tolist() for share in split_members(batch, 2)] == [[0, 1, 2, 3], [4, 5]]
    assert [share.tolist() for share in split_members(batch, 5)] == [[0, 1], [2, 3], [4, 5]]
    assert [share.tolist() for share in split_members(batch, 1)] == [[0, 1, 2, 3, 4, 5]]
