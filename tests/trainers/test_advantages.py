"""Group estimators and token recursions against the fixtures F1, F2, F8 and checks 1-3, 6, 10 of algorithms.md."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from forkgym.trainers.advantages import (
    calibrated_advantage,
    component_advantage,
    gae,
    gpg_advantage,
    group_advantage,
    has_signal,
    overlong_penalty,
    pass_at_k_advantage,
    returns_to_go,
    tournament_advantage,
    whiten,
)

KINDS: dict[str, dict[str, Any]] = {
    "grpo": {"baseline": "mean", "std": "sample"},
    "population": {"baseline": "mean", "std": "population"},
    "dr_grpo": {"baseline": "mean", "std": "none"},
    "rloo": {"baseline": "loo", "std": "none"},
    "loo": {"baseline": "loo", "std": "loo"},
    "maxrl": {"baseline": "mean", "std": "mean"},
    "opo": {"baseline": "length", "std": "none"},
}


def advantages(rewards: list[float], kind: str, eps: float = 1e-6, tolerance: float = 1e-4) -> list[float]:
    reward = torch.tensor(rewards, dtype=torch.float64)
    group = torch.zeros(len(rewards), dtype=torch.int64)
    length = torch.ones(len(rewards))
    return group_advantage(reward, group, eps=eps, tolerance=tolerance, length=length, **KINDS[kind]).tolist()


@pytest.mark.parametrize(
    ("kind", "eps", "winner", "loser"),
    [
        ("grpo", 1e-6, 1.499997, -0.499999),
        ("grpo", 1e-4, 1.4997, -0.4999),
        ("population", 0.0, 1.732051, -0.577350),
        ("dr_grpo", 0.0, 0.75, -0.25),
        ("rloo", 0.0, 1.0, -1 / 3),
        ("loo", 0.0, 1.0, -0.577350),
        ("maxrl", 0.0, 3.0, -1.0),
    ],
)
def test_f1_one_success_in_four(kind: str, eps: float, winner: float, loser: float) -> None:
    assert advantages([1, 0, 0, 0], kind, eps) == pytest.approx([winner, loser, loser, loser], abs=1e-6)


@pytest.mark.parametrize(
    ("kind", "expected"), [("grpo", 0.866024), ("population", 0.999998), ("rloo", 2 / 3), ("dr_grpo", 0.5)]
)
def test_f2_two_successes_in_four(kind: str, expected: float) -> None:
    assert advantages([1, 1, 0, 0], kind) == pytest.approx([expected, expected, -expected, -expected], abs=1e-6)


def test_long_episodes_lose_reward_in_a_line() -> None:
    tokens = torch.tensor([0, 60, 61, 80, 100, 900])
    found = overlong_penalty(tokens, limit=100, margin=40, penalty=0.5)
    assert found.tolist() == pytest.approx([0.0, 0.0, 0.0125, 0.25, 0.5, 0.5])


def test_gpg_scales_by_the_groups_that_teach() -> None:
    reward, group = torch.tensor([1.0, 0.0, 1.0, 1.0, 0.0, 0.0]), torch.tensor([0, 0, 1, 1, 2, 2])
    assert gpg_advantage(reward, group, tolerance=1e-4).tolist() == [1.5, -1.5, 0.0, 0.0, 0.0, 0.0]
    assert gpg_advantage(torch.ones(2), torch.zeros(2, dtype=torch.int64), tolerance=1e-4).tolist() == [0.0, 0.0]


def test_f11_the_baseline_of_opo_is_weighted_by_length() -> None:
    found = group_advantage(
        torch.tensor([1.0, 0.0, 1.0, 0.0]),
        torch.zeros(4, dtype=torch.int64),
        baseline="length",
        std="none",
        eps=0.0,
        tolerance=1e-4,
        length=torch.tensor([100, 300, 200, 400]),
    )
    assert found.tolist() == pytest.approx([0.7, -0.3, 0.7, -0.3])


def test_without_a_baseline_every_reward_counts() -> None:
    reward, group = torch.tensor([0.5, 0.5, -1.0]), torch.tensor([0, 0, 1])
    found = group_advantage(reward, group, baseline="zero", std="none", eps=0.0, tolerance=1e-4)
    assert found.tolist() == [0.5, 0.5, -1.0]


def test_a_mean_as_divisor_needs_rewards_that_are_not_negative() -> None:
    with pytest.raises(ValueError, match="negative"):
        group_advantage(
            torch.tensor([1.0, -1.0]),
            torch.zeros(2, dtype=torch.int64),
            baseline="mean",
            std="mean",
            eps=0.0,
            tolerance=1e-4,
        )


def test_gdpo_normalises_each_component_before_it_adds_them() -> None:
    # Column 0 is r = [1, 0, 0, 0] of F1 at 100 times its size; column 1 does not differ in group 0.
    parts = torch.tensor([[100.0, 1], [0, 1], [0, 1], [0, 1], [0, 1], [0, 0]])
    group = torch.tensor([0, 0, 0, 0, 1, 1])
    found = component_advantage(parts, torch.tensor([1.0, 2.0]), group, eps=0.0, tolerance=1e-4)
    assert found.tolist() == pytest.approx([1.5, -0.5, -0.5, -0.5, math.sqrt(2), -math.sqrt(2)], rel=1e-6)


@pytest.mark.parametrize("kind", list(KINDS))
def test_f2_equal_rewards_and_single_members_give_zero(kind: str) -> None:
    assert advantages([0.3, 0.3, 0.3], kind) == [0.0, 0.0, 0.0]
    assert advantages([1.0], kind) == [0.0]


def test_a_tiny_spread_is_no_signal_only_within_the_tolerance() -> None:
    assert advantages([1.0, 1.00001], "grpo", tolerance=1e-4) == [0.0, 0.0]
    assert advantages([1.0, 1.00001], "grpo", tolerance=0.0) == pytest.approx([-0.6195, 0.6195], abs=1e-4)
    assert advantages([1 / 3, 0.334], "dr_grpo") == pytest.approx([-1 / 3000, 1 / 3000], abs=1e-9)


def test_check_6_each_group_is_centred_alone_in_any_order() -> None:
    groups = {0: [1.0, 2.0, 3.0, 4.0], 1: [5.0, 5.0, 5.0], 2: [0.0, 1.0, 2.0, 3.0]}
    order = [0, 1, 0, 2, 1, 2, 2, 0, 1, 0, 2]
    taken = dict.fromkeys(groups, 0)
    rewards: list[float] = []
    for label in order:
        rewards.append(groups[label][taken[label]])
        taken[label] += 1
    values = group_advantage(
        torch.tensor(rewards), torch.tensor(order), baseline="mean", std="none", eps=0.0, tolerance=1e-4
    )
    assert values[torch.tensor(order) == 1].tolist() == [0.0, 0.0, 0.0]
    assert values[torch.tensor(order) == 0].tolist() == [-1.5, -0.5, 0.5, 1.5]
    assert values[torch.tensor(order) == 2].tolist() == [-1.5, -0.5, 0.5, 1.5]


def test_signal_is_told_per_group() -> None:
    signal = has_signal(torch.tensor([1.0, 0.0, 1.0, 1.0, 0.5]), torch.tensor([0, 0, 1, 1, 2]), tolerance=1e-4)
    assert signal.tolist() == [True, True, False, False, False]


def test_a_member_without_a_finite_reward_is_refused() -> None:
    with pytest.raises(ValueError, match="leave out members"):
        advantages([1.0, math.nan], "grpo")


def test_loo_deviation_needs_the_loo_baseline() -> None:
    with pytest.raises(ValueError, match="baseline='loo'"):
        group_advantage(torch.zeros(2), torch.zeros(2), baseline="mean", std="loo", eps=0.0, tolerance=0.0)


def test_check_1_a_return_crosses_observations() -> None:
    reward = torch.tensor([[0.0, 0, 0, 0, 0, 1]])
    mask = torch.tensor([[True, True, False, False, True, True]])
    assert returns_to_go(reward, mask, 1.0).tolist() == [[1, 1, 0, 0, 1, 1]]
    assert returns_to_go(reward, mask, 0.5).tolist() == [[0.125, 0.25, 0, 0, 0.5, 1]]


def test_check_2_a_reward_on_a_tool_token_counts_for_the_token_before() -> None:
    reward = torch.tensor([[0.0, 0, 0, 1]])
    mask = torch.tensor([[True, True, True, False]])
    assert returns_to_go(reward, mask, 1.0).tolist() == [[1, 1, 1, 0]]
    assert returns_to_go(reward, mask, 0.5).tolist() == [[0.25, 0.5, 1, 0]]
    assert gae(reward, torch.zeros(1, 4), mask, gamma=1.0, lam=1.0).tolist() == [[1, 1, 1, 0]]


@pytest.mark.parametrize("leak", [100.0, math.nan])
def test_check_3_a_masked_value_is_never_read(leak: float) -> None:
    value = torch.tensor([[0.0, 0.0, leak]])
    mask = torch.tensor([[True, True, False]])
    result = gae(torch.tensor([[0.0, 1.0, 0.0]]), value, mask, gamma=1.0, lam=0.95)
    assert result[0].tolist() == pytest.approx([0.95, 1.0, 0.0])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([0.0] * 6, [0.857375, 0.9025, 0, 0, 0.95, 1]),
        ([0.1, 0.2, 9, 9, 0.3, 0.4], [0.799675, 0.7365, 0, 0, 0.67, 0.6]),
    ],
)
def test_f8_gae_skips_observations(value: list[float], expected: list[float]) -> None:
    reward = torch.tensor([[0.0, 0, 0, 0, 0, 1]], dtype=torch.float64)
    mask = torch.tensor([[True, True, False, False, True, True]])
    result = gae(reward, torch.tensor([value], dtype=torch.float64), mask, gamma=1.0, lam=0.95)
    assert result[0].tolist() == pytest.approx(expected, abs=1e-9)


def test_check_10_statistics_ignore_masked_and_padded_entries() -> None:
    expected = [-0.577350, -0.577350, 0, 0, 1.154701]
    values = torch.tensor([[1.0, 1, 0, 0, 3]])
    mask = torch.tensor([[True, True, False, False, True]])
    assert whiten(values, mask)[0].tolist() == pytest.approx(expected, abs=1e-6)
    garbage = torch.tensor([[math.nan, 1e9, -7.0, 5.0, math.inf]])
    padded = whiten(torch.cat([values, garbage], 1), torch.cat([mask, torch.zeros_like(mask)], 1))
    assert padded[0].tolist() == pytest.approx(expected + [0.0] * 5, abs=1e-6)


def test_whitening_equal_values_gives_zero() -> None:
    assert whiten(torch.full((1, 3), 0.1), torch.ones(1, 3, dtype=torch.bool)).tolist() == [[0.0, 0.0, 0.0]]


def best_of(rewards: list[float], k: int) -> list[float]:
    group = torch.zeros(len(rewards), dtype=torch.int64)
    return pass_at_k_advantage(torch.tensor(rewards), group, k=k, tolerance=1e-4).tolist()


def test_pass_at_k_by_hand() -> None:
    assert best_of([0, 1, 0, 0], 2) == [0, 2, 0, 0]
    assert best_of([1, 1, 0, 0], 2) == pytest.approx([4 / 3, 4 / 3, 0, 0])
    assert best_of([0.25, 1, 0.5], 2) == pytest.approx([0, 1.25, 0.25])
    assert best_of([1, 1, 1], 2) == [0, 0, 0]


@pytest.mark.parametrize("k", [2, 3, 5])
def test_pass_at_k_counts_the_sets_that_hold_a_member(k: int) -> None:
    rewards = [0.25, 1.0, 0.5, 0.5, -1.0, 0.75]
    for i, found in enumerate(best_of(rewards, k)):
        others = [rewards[j] for j in range(len(rewards)) if j != i]
        gains = [max(0.0, rewards[i] - max(rest)) for rest in itertools.combinations(others, k - 1)]
        assert found == pytest.approx(k * sum(gains) / len(gains))


@pytest.mark.parametrize("k", [2, 3])
def test_pass_at_k_is_an_unbiased_gradient(k: int) -> None:
    """Over all outcomes of 4 tries that succeed with probability p: d/dp of 1 - (1-p)^k is k (1-p)^(k-1)."""
    p, found = 0.3, 0.0
    for tries in itertools.product([0.0, 1.0], repeat=4):
        chance = math.prod(p if r else 1 - p for r in tries)
        score = [1 / p if r else -1 / (1 - p) for r in tries]
        found += chance * sum(a * s for a, s in zip(best_of(list(tries), k), score, strict=True)) / 4
    assert found == pytest.approx(k * (1 - p) ** (k - 1))


def test_pass_at_k_of_a_group_that_lost_members() -> None:
    """Two of the members of group 1 failed: fewer than k are left, and nothing is learnt from them."""
    reward, group = torch.tensor([0.0, 1.0, 0.0, 1.0, 0.0]), torch.tensor([0, 1, 0, 0, 1])
    assert pass_at_k_advantage(reward, group, k=3, tolerance=1e-4).tolist() == [0, 0, 0, 3, 0]


def test_pass_at_k_refuses_one_and_nan() -> None:
    with pytest.raises(ValueError, match="at least 2"):
        best_of([1, 0], 1)
    with pytest.raises(ValueError, match="no finite reward"):
        best_of([1, math.nan], 2)


def test_leap_is_a_tournament_in_which_successes_are_tied_by_length() -> None:
    def found(rewards: list[float], tokens: list[int]) -> list[float]:
        group = torch.zeros(len(rewards), dtype=torch.int64)
        return tournament_advantage(torch.tensor(rewards), group, torch.tensor(tokens), tolerance=1e-4).tolist()

    # The first wins all three matches, the second one of three more than it loses; failures do not beat each other.
    assert found([1, 1, 0, 0], [10, 20, 5, 9]) == pytest.approx([1, 1 / 3, -2 / 3, -2 / 3])
    assert found([1, 1, 1], [1, 2, 3]) == [1, 0, -1]
    assert found([0, 0, 0], [1, 2, 3]) == [0, 0, 0]
    assert found([700, 0.2, 0.1], [5, 5, 5]) == [1, 0, -1]
    assert found([1], [5]) == [0]


def test_river_bounds_the_credit_of_all_but_the_best() -> None:
    def found(rewards: list[float], bound: float = 0.5) -> list[float]:
        group = torch.zeros(len(rewards), dtype=torch.int64)
        return calibrated_advantage(torch.tensor(rewards), group, bound=bound, tolerance=1e-4).tolist()

    # 1, 0.5, 0.5, 0.25 and 0, with mean 0.45: 5 is the second and 2 the first of two distinct scores below the best.
    assert found([9, 5, 5, 2, 0]) == pytest.approx([0.55, 0.05, 0.05, -0.2, -0.45])
    assert found([9e6, 5, 5, 2, 0]) == pytest.approx([0.55, 0.05, 0.05, -0.2, -0.45])
    assert found([3, 0], 0.0) == [0.5, -0.5]
    assert found([4, 4, 4]) == found([0, -1, 0]) == [0, 0, 0]


GROUP_ESTIMATORS: dict[str, Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]] = {
    **{
        name: lambda r, g, n, kind=kind: group_advantage(r, g, eps=1e-6, tolerance=1e-4, length=n, **kind)
        for name, kind in KINDS.items()
    },
    "gpg": lambda r, g, _: gpg_advantage(r, g, tolerance=1e-4),
    "pass_at_k": lambda r, g, _: pass_at_k_advantage(r, g, k=2, tolerance=1e-4),
    "leap": lambda r, g, n: tournament_advantage(r, g, n, tolerance=1e-4),
    "river": lambda r, g, _: calibrated_advantage(r, g, bound=0.5, tolerance=1e-4),
}


@pytest.mark.parametrize("name", GROUP_ESTIMATORS)
@settings(max_examples=15, deadline=None)
@given(
    members=st.lists(st.tuples(st.integers(0, 8), st.integers(0, 2), st.integers(1, 9)), min_size=1, max_size=9),
    data=st.data(),
)
def test_the_order_of_members_and_the_names_of_groups_do_not_matter(
    name: str, members: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(len(members))))
    reward, group, length = (torch.tensor(column) for column in zip(*members, strict=True))
    estimate = GROUP_ESTIMATORS[name]
    found = estimate(reward / 8, group, length)
    again = estimate(reward[order] / 8, 7 - group[order], length[order])
    assert again.tolist() == pytest.approx(found[order].tolist(), abs=1e-9)
