"""Loss terms against the fixtures F3, F4, F6, F7 and checks 4, 5, 7, 11, 14 of algorithms.md."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from forkgym.trainers.errors import NonFiniteError
from forkgym.trainers.kinds import Aggregation, CorrectionKind, CorrectionLevel, KlKind
from forkgym.trainers.objectives import (
    clipped_loss,
    correction_weights,
    kl_penalty,
    log_ratio,
    require_finite,
    token_weights,
)


def ragged(rows: list[list[float]]) -> tuple[Tensor, Tensor]:
    width = max(len(row) for row in rows)
    values = torch.full((len(rows), width), math.nan)
    mask = torch.zeros(len(rows), width, dtype=torch.bool)
    for index, row in enumerate(rows):
        values[index, : len(row)] = torch.tensor(row)
        mask[index, : len(row)] = True
    return values, mask


@pytest.mark.parametrize(
    ("aggregation", "l_max", "expected"),
    [
        ("token_mean", None, 16 / 6),
        ("seq_mean_token_mean", None, 2.5),
        ("seq_mean_token_sum_norm", 8, 1.0),
        ("seq_mean_token_sum_norm", 1, 8.0),
    ],
)
def test_f3_aggregations(aggregation: Aggregation, l_max: int | None, expected: float) -> None:
    values, mask = ragged([[1, 3], [2, 2, 2, 6]])
    weights = token_weights(mask, torch.arange(2), aggregation, l_max)
    assert (values[mask] * weights[mask]).sum().item() == pytest.approx(expected)


def test_dr_grpo_weights_need_their_constant() -> None:
    with pytest.raises(ValueError, match="l_max"):
        token_weights(torch.ones(1, 2, dtype=torch.bool), torch.zeros(1, dtype=torch.int64), "seq_mean_token_sum_norm")


@pytest.mark.parametrize(
    ("ratio", "advantage", "high", "dual", "expected", "stopped"),
    [
        (1.5, 1.0, 0.2, None, -1.2, True),
        (1.5, 1.0, 0.28, None, -1.28, True),
        (1.25, 1.0, 0.2, None, -1.2, True),
        (1.25, 1.0, 0.28, None, -1.25, False),
        (0.5, 1.0, 0.2, None, -0.5, False),
        (0.5, -1.0, 0.2, None, 0.8, True),
        (5.0, -1.0, 0.2, None, 5.0, False),
        (5.0, -1.0, 0.2, 3.0, 3.0, True),
    ],
)
def test_f4_clipping(
    ratio: float, advantage: float, high: float, dual: float | None, expected: float, stopped: bool
) -> None:
    loss, clip = clipped_loss(
        torch.tensor([ratio]), torch.tensor([advantage]), clip_low=0.2, clip_high=high, dual_clip=dual
    )
    assert loss.item() == pytest.approx(expected)
    assert clip.tolist() == [stopped]


@pytest.mark.parametrize(
    ("kind", "level", "low", "high", "expected"),
    [
        ("tis", "token", 0.0, 2.0, [1, 2, 0.5]),
        ("icepop", "token", 0.5, 5.0, [1, 3, 0.5]),
        ("icepop", "token", 0.5, 2.0, [1, 0, 0.5]),
        ("tis", "sequence", 0.0, 2.0, [1.5] * 3),
        ("tis", "geometric", 0.0, 2.0, [1.144714] * 3),
        ("icepop", "sequence", 0.5, 1.4, [0.0] * 3),
        ("icepop", "geometric", 0.5, 1.4, [1.144714] * 3),
    ],
)
def test_f6_importance_weights(
    kind: CorrectionKind, level: CorrectionLevel, low: float, high: float, expected: list[float]
) -> None:
    log_weight = torch.tensor([1.0, 3.0, 0.5]).log()
    weights = correction_weights(
        log_weight,
        torch.zeros(3, dtype=torch.int64),
        kind=kind,
        level=level,
        low=low,
        high=high,
    )
    assert weights.tolist() == pytest.approx(expected, abs=1e-6)


def test_sequence_weights_multiply_within_a_member_only() -> None:
    weights = correction_weights(
        torch.tensor([2.0, 3.0, 0.5]).log(), torch.tensor([0, 1, 0]), kind="tis", level="sequence", low=0.0, high=9.0
    )
    assert weights.tolist() == pytest.approx([1.0, 3.0, 1.0])


def test_f7_kl_values() -> None:
    logp, reference = torch.tensor([0.2]), torch.tensor([0.0])
    kinds: list[KlKind] = ["k1", "k2", "k3"]
    values = [kl_penalty(logp, reference, kind).item() for kind in kinds]
    assert values == pytest.approx([0.2, 0.02, 0.018731], abs=1e-6)


@pytest.mark.parametrize(("kind", "expected"), [("k1", 0.0), ("k2", 0.177933), ("k3", 0.2)])
def test_f7_expected_gradient_of_each_kl_as_a_loss(kind: KlKind, expected: float) -> None:
    logit = torch.tensor(math.log(0.7 / 0.3), requires_grad=True)
    logp = torch.stack([torch.nn.functional.logsigmoid(logit), torch.nn.functional.logsigmoid(-logit)])
    penalty = kl_penalty(logp, torch.tensor([0.5, 0.5]).log(), kind)
    (torch.tensor([0.7, 0.3]) * penalty).sum().backward()
    assert logit.grad is not None
    assert logit.grad.item() == pytest.approx(expected, abs=1e-5)


def loss_and_gradient(parts: list[list[int]], aggregation: Aggregation) -> tuple[float, Tensor]:
    """Check 4's data as token losses scale * l, cut into the given micro-batches of rows."""
    scale = torch.tensor(1.0, requires_grad=True)
    values, mask = ragged([[0.5] * 100, [0.3] * 300, [0.3] * 300, [0.3] * 300])
    weights = token_weights(mask, torch.arange(4), aggregation, 500)
    total = 0.0
    for rows in parts:
        part = (scale * values[rows][mask[rows]] * weights[rows][mask[rows]]).sum()
        part.backward()
        total += part.item()
    assert scale.grad is not None
    return total, scale.grad


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [
        ("token_mean", 0.32),
        ("seq_mean_token_mean", 0.35),
        ("seq_mean_token_sum_norm", 320 / 2000),
    ],
)
@pytest.mark.parametrize("parts", [[[0, 1, 2, 3]], [[0], [1, 2, 3]], [[3, 0], [2, 1]], [[0], [1], [2], [3]]])
def test_checks_4_and_5_any_split_gives_the_same_loss_and_gradient(
    parts: list[list[int]], aggregation: Aggregation, expected: float
) -> None:
    loss, gradient = loss_and_gradient(parts, aggregation)
    assert loss == pytest.approx(expected, abs=1e-6)
    assert gradient.item() == pytest.approx(expected, abs=1e-6)


def test_check_7_a_member_with_three_rows_weighs_as_much_as_one_with_one() -> None:
    mask = torch.ones(4, 2, dtype=torch.bool)
    member = torch.tensor([0, 0, 0, 1])
    weights = token_weights(mask, member, "seq_mean_token_mean")
    assert weights[:3].sum().item() == pytest.approx(0.5)
    assert weights[3].sum().item() == pytest.approx(0.5)


def test_nothing_to_train_on_gives_zero_weights() -> None:
    weights = token_weights(torch.zeros(2, 3, dtype=torch.bool), torch.arange(2), "token_mean")
    assert weights.tolist() == [[0.0] * 3] * 2
    empty = torch.zeros(0, 0, dtype=torch.bool)
    assert token_weights(empty, torch.zeros(0, dtype=torch.int64), "token_mean").shape == (0, 0)


def test_check_11_masked_nan_has_no_part_in_loss_or_gradient() -> None:
    values = torch.tensor([[1.0, math.nan]], requires_grad=True)
    mask = torch.tensor([[True, False]])
    weights = token_weights(mask, torch.zeros(1, dtype=torch.int64), "token_mean")
    loss = (values[mask] * weights[mask]).sum()
    loss.backward()
    assert loss.item() == 1.0
    assert values.grad is not None
    assert values.grad.tolist() == [[1.0, 0.0]]


def test_check_11_a_trained_nan_names_its_episode() -> None:
    values, members = torch.tensor([0.0, math.nan, 0.0]), torch.tensor([0, 1, 1])
    with pytest.raises(NonFiniteError, match="episode 'b'"):
        require_finite(values, members, ["a", "b"], "log-probability")
    require_finite(values[:1], members[:1], ["a", "b"], "log-probability")


def test_check_14_the_ratio_is_against_the_sampler() -> None:
    logp = torch.tensor([0.55]).log().requires_grad_()
    ratio = log_ratio(logp, torch.tensor([0.5]).log()).exp()
    loss, _ = clipped_loss(ratio, torch.tensor([1.0]), clip_low=0.2, clip_high=0.2)
    loss.sum().backward()
    assert ratio.item() == pytest.approx(1.1)
    assert loss.item() == pytest.approx(-1.1)
    assert logp.grad is not None
    assert logp.grad.item() == pytest.approx(-1.1)


def test_two_sided_clipping_is_dual_clip() -> None:
    """-min(min(ratio, delta) * A, clip(ratio) * A), written out, for a delta above the upper bound of the clip."""
    for advantage in (2.0, 0.0, -0.7):
        for ratio in (0.1, 0.79, 1.0, 1.21, 2.9, 3.1, 50.0):
            by_hand = -min(min(ratio, 3.0) * advantage, min(max(ratio, 0.8), 1.2) * advantage)
            found, _ = clipped_loss(
                torch.tensor([ratio]), torch.tensor([advantage]), clip_low=0.2, clip_high=0.2, dual_clip=3.0
            )
            assert found.item() == pytest.approx(by_hand, rel=1e-6)


def test_f12_decoupled_ratios() -> None:
    """Decoupled PPO: the trainer's old policy is pi_prox, and a correction makes up for the sampler."""
    now, proximal, behaviour = (torch.tensor([p]).log() for p in (0.5, 0.4, 0.32))
    member = torch.zeros(1, dtype=torch.int64)
    weight = correction_weights(proximal - behaviour, member, kind="tis", level="token", low=0.0, high=2.0)
    ratio = log_ratio(now, proximal).exp()
    assert weight.item() == pytest.approx(1.25)
    assert ratio.item() == pytest.approx(1.25)
    assert log_ratio(now, behaviour).exp().item() == pytest.approx(1.5625)
    loss, _ = clipped_loss(ratio, torch.tensor([1.0]), clip_low=0.2, clip_high=0.28)
    assert (weight * loss).item() == pytest.approx(-1.5625)


def test_an_enormous_ratio_stays_finite() -> None:
    logp = torch.tensor([0.0], requires_grad=True)
    loss, _ = clipped_loss(
        log_ratio(logp, torch.tensor([-2000.0])).exp(), torch.tensor([-1.0]), clip_low=0.2, clip_high=0.2
    )
    loss.sum().backward()
    assert loss.item() == pytest.approx(math.exp(20), rel=1e-5)
    assert logp.grad is not None
    assert logp.grad.tolist() == [0.0]
