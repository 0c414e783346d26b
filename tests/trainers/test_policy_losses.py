"""Policy losses by name: fixtures F4, F5, F11 of algorithms.md, and gradients of the formulas written out whole."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from forkgym.trainers.kinds import LOSS_OPTIONS, PolicyLoss
from forkgym.trainers.policy_losses import Tokens, chosen_tokens, episode_log_ratios, given_by_update, policy_loss

LOGP = [-0.5, -1.2, -0.1, -2.0, -0.7, -0.9]
OLD = [-0.9, -1.1, -0.2, -1.0, -0.7, -1.5]
MEMBER = torch.tensor([0, 0, 0, 1, 1, 2])
ADVANTAGE = torch.tensor([1.0, 1.0, 1.0, -0.5, -0.5, -2.0])


def one(kind: PolicyLoss, ratio: float, advantage: float, **options: float) -> tuple[float, bool]:
    tokens = Tokens(torch.tensor([math.log(ratio)]), torch.zeros(1), torch.tensor([advantage]))
    loss, cut = policy_loss(kind, tokens, {**LOSS_OPTIONS[kind], **options})
    return loss.item(), bool(cut)


@pytest.mark.parametrize(
    ("kind", "ratio", "advantage", "options", "expected", "cut"),
    [
        ("ppo", 1.5, 1.0, {}, -1.2, True),
        ("ppo", 5.0, -1.0, {"dual_clip": 3.0}, 3.0, True),
        ("sapo", 1.5, 1.0, {}, -2.489837, False),
        ("sapo", 1.5, -1.0, {}, 2.393585, False),
        ("sapo", 1.0, 1.0, {}, -2.0, False),
        ("cispo", 6.0, 1.0, {}, -5 * math.log(6), True),
        ("cispo", 0.5, 1.0, {}, -0.5 * math.log(0.5), False),
        ("cispo", 0.5, 1.0, {"clip_low": 0.2}, -0.8 * math.log(0.5), True),
        ("topr", 2.0, 1.0, {}, -math.log(2), False),
        ("topr", 2.0, -1.0, {}, math.log(2), True),
        ("topr", 0.5, -1.0, {}, 0.5 * math.log(0.5), False),
        ("dro", 2.0, 1.0, {}, -(math.log(2) - 0.05 * math.log(2) ** 2), False),
        ("dis", 1.5, 1.0, {}, -1.5 * math.log(1.5), False),
        ("dis", 5.0, 1.0, {}, 0.0, True),
        ("dis", 0.1, -1.0, {}, 0.0, True),
        ("reinforce", 2.0, -3.0, {}, 3 * math.log(2), False),
    ],
)
def test_one_token(
    kind: PolicyLoss, ratio: float, advantage: float, options: dict[str, float], expected: float, cut: bool
) -> None:
    loss, was_cut = one(kind, ratio, advantage, **options)
    assert loss == pytest.approx(expected, rel=1e-5)
    assert was_cut == cut


@pytest.mark.parametrize(
    ("now", "before", "advantage", "loss"),
    [
        (0.5, 0.2, 1.0, 0.0),  # moved up by 0.3 and pushed up: dropped
        (0.5, 0.4, 1.0, -1.25),
        (0.5, 0.2, -1.0, 2.5),  # pushed back: kept
        (0.2, 0.5, -1.0, 0.0),
    ],
)
def test_dppo_drops_by_the_distance_of_probabilities(now: float, before: float, advantage: float, loss: float) -> None:
    tokens = Tokens(torch.tensor([math.log(now)]), torch.tensor([math.log(before)]), torch.tensor([advantage]))
    assert policy_loss("dppo", tokens, LOSS_OPTIONS["dppo"])[0].item() == pytest.approx(loss)


def test_f5_ratios_of_an_episode() -> None:
    def ratio(kind: PolicyLoss, logs: list[float]) -> list[float]:
        tokens = Tokens(torch.tensor(logs), torch.zeros(len(logs)), torch.ones(len(logs)))
        member = torch.zeros(len(logs), dtype=torch.int64)
        return episode_log_ratios(kind, tokens, member, LOSS_OPTIONS[kind]).exp().tolist()

    assert ratio("gspo", [0.1, 0.3, -0.1]) == pytest.approx([1.105171] * 3)
    assert ratio("gmpo", [0.5, -0.1]) == pytest.approx([1.161834] * 2)


def of_an_episode(kind: PolicyLoss, logp: list[float], old: list[float], advantage: list[float]) -> list[float]:
    tokens = Tokens(torch.tensor(logp), torch.tensor(old), torch.tensor(advantage))
    options = LOSS_OPTIONS[kind]
    given = episode_log_ratios(kind, tokens, torch.zeros(len(logp), dtype=torch.int64), options)
    return policy_loss(kind, Tokens(tokens.logp, tokens.old, tokens.advantage, given), options)[0].tolist()


def test_vespo_weighs_an_episode_by_the_product_of_its_ratios() -> None:
    old = [-1.1, -1.3, -0.9]  # log w = 0.3, w = 1.349859
    up = math.exp(2 * 0.3 + 3 * (1 - 1.349859))
    down = math.exp(3 * 0.3 + 2 * (1 - 1.349859))
    assert of_an_episode("vespo", [-1.0, -1.0, -1.0], old, [1.0] * 3) == pytest.approx([up] * 3)
    assert of_an_episode("vespo", [-1.0, -1.0, -1.0], old, [-1.0] * 3) == pytest.approx([-down] * 3)
    assert of_an_episode("vespo", [-1.0], [-1.0], [2.0]) == pytest.approx([2.0])


def test_opsm_drops_a_whole_episode_by_its_mean_advantage() -> None:
    assert of_an_episode("opsm", [0.0] * 3, [1.0] * 3, [-0.5, 0.25, -0.25]) == [0.0] * 3
    kept = [-math.exp(-1) * 0.5, math.exp(-1) * -0.25, 0.8 * 0.25]  # the last by ppo's clip at 0.8
    assert of_an_episode("opsm", [0.0] * 3, [1.0] * 3, [0.5, 0.25, -0.25]) == pytest.approx(kept)
    assert of_an_episode("opsm", [0.0], [0.05], [-1.0]) == pytest.approx([math.exp(-0.05)])


def whole_gspo(logp: Tensor, member: int, options: dict[str, float]) -> Tensor:
    picked, advantage = member == MEMBER, ADVANTAGE[member == MEMBER][0]
    s = (logp[picked] - torch.tensor(OLD)[picked]).mean().exp()
    return -torch.minimum(s * advantage, s.clamp(1 - options["clip_low"], 1 + options["clip_high"]) * advantage)


def whole_gmpo(logp: Tensor, member: int, options: dict[str, float]) -> Tensor:
    picked, advantage = member == MEMBER, ADVANTAGE[member == MEMBER][0]
    each = logp[picked] - torch.tensor(OLD)[picked]
    cut = each.clamp(max=options["clip_high"]) if advantage > 0 else each.clamp(min=-options["clip_low"])
    return -cut.mean().exp() * advantage


@pytest.mark.parametrize(
    ("kind", "whole", "options"),
    [
        ("gspo", whole_gspo, {"clip_low": 3e-4, "clip_high": 4e-4}),
        ("gspo", whole_gspo, {"clip_low": 0.5, "clip_high": 0.5}),
        ("gmpo", whole_gmpo, {"clip_low": 0.4, "clip_high": 0.4}),
        ("gmpo", whole_gmpo, {"clip_low": 0.05, "clip_high": 0.2}),
    ],
)
def test_shares_of_tokens_add_up_to_the_loss_and_gradient_of_episodes(
    kind: PolicyLoss, whole: Callable[..., Any], options: dict[str, float]
) -> None:
    logp = torch.tensor(LOGP, requires_grad=True)
    expected = torch.stack([whole(logp, member, options) for member in range(3)]).mean()
    (gradient,) = torch.autograd.grad(expected, logp)

    counts = torch.tensor([3.0, 2.0, 1.0])[MEMBER]
    total, shares = 0.0, torch.zeros(6)
    given = episode_log_ratios(kind, Tokens(logp, torch.tensor(OLD), ADVANTAGE), MEMBER, options)
    assert not given.requires_grad
    for part in ([0, 3], [1, 2, 5], [4]):  # episodes are spread over micro-batches
        mine = torch.tensor([LOGP[i] for i in part], requires_grad=True)
        tokens = Tokens(mine, torch.tensor(OLD)[part], ADVANTAGE[part], given[part])
        loss = (policy_loss(kind, tokens, options)[0] / counts[part] / 3).sum()
        loss.backward()
        total += loss.item()
        assert mine.grad is not None
        shares[part] = mine.grad
    assert total == pytest.approx(expected.item(), rel=1e-6)
    assert shares.tolist() == pytest.approx(gradient.tolist(), abs=1e-7)


def test_gradients_of_the_constant_weights() -> None:
    def gradient(kind: PolicyLoss, ratio: float, advantage: float) -> float:
        logp = torch.tensor([math.log(ratio)], requires_grad=True)
        tokens = Tokens(logp, torch.zeros(1), torch.tensor([advantage]))
        policy_loss(kind, tokens, LOSS_OPTIONS[kind])[0].sum().backward()
        assert logp.grad is not None
        return logp.grad.item()

    assert gradient("cispo", 6.0, 1.0) == pytest.approx(-5.0)
    assert gradient("topr", 2.0, -1.0) == pytest.approx(1.0)
    assert gradient("topr", 0.5, -1.0) == pytest.approx(0.5)
    assert gradient("reinforce", 0.5, 2.0) == pytest.approx(-2.0)
    assert gradient("ppo", 1.5, 1.0) == 0.0
    # d/dx of -(4 / tau) * sigmoid(tau * (e^x - 1)) at x = 0 is -1.
    assert gradient("sapo", 1.0, 1.0) == pytest.approx(-1.0)


def test_m2po_drops_as_few_of_the_farthest_tokens_as_it_must() -> None:
    def dropped(logs: list[float], tau: float, advantage: list[float] | None = None) -> list[bool]:
        """The advantage points where the token went, if not given."""
        push = torch.tensor(logs).sign() if advantage is None else torch.tensor(advantage)
        tokens = Tokens(torch.tensor(logs), torch.zeros(len(logs)), push)
        return chosen_tokens("m2po", tokens, {"tau": tau}).tolist()

    # Squares 0.01, 0.25, 0.04, 0.04: means of the smallest one, three and four are 0.01, 0.03 and 0.085.
    assert dropped([0.1, -0.5, 0.2, -0.2], 0.04) == [False, True, False, False]
    assert dropped([0.1, -0.5, 0.2, -0.2], 0.086) == [False] * 4
    assert dropped([0.1, -0.5, 0.2, -0.2], 0.026) == [False, True, True, True]  # equal tokens go together
    assert dropped([0.5, 0.5], 0.04) == [True, True]
    # Those pushed back, or not pushed, neither go nor count: the mean of the other two is 0.145.
    assert dropped([0.9, 0.2, -0.5, 0.1], 0.1, [-1.0, 1.0, -1.0, 0.0]) == [False, False, True, False]
    assert dropped([0.9, 0.2, -0.5, 0.1], 0.146, [-1.0, 1.0, -1.0, 0.0]) == [False] * 4
    assert dropped([], 0.04) == []


def test_covariance_chooses_likely_tokens_that_are_pushed_up() -> None:
    tokens = Tokens(torch.tensor([-0.1, -2.0, -0.2, -3.0]), torch.zeros(4), torch.tensor([1.0, 1.0, -1.0, -1.0]))
    # Mean A 0, mean log pi -1.325: 1.225, -0.675, -1.125, 1.675.
    assert chosen_tokens("clip_cov", tokens, {"cov_share": 2e-4}).tolist() == [False, False, False, True]
    assert chosen_tokens("kl_cov", tokens, {"cov_share": 0.5}).tolist() == [True, False, False, True]
    assert chosen_tokens("kl_cov", tokens, {"cov_share": 1.0}).tolist() == [True, False, False, True]  # only positive
    equal = Tokens(torch.full((3,), -1.0), torch.zeros(3), torch.ones(3))
    assert not chosen_tokens("clip_cov", equal, {"cov_share": 1.0}).any()


@pytest.mark.parametrize("kind", ["m2po", "clip_cov", "kl_cov"])
def test_tokens_are_chosen_whatever_their_order(kind: PolicyLoss) -> None:
    order = torch.tensor([4, 0, 5, 2, 1, 3])
    logp, old, options = torch.tensor(LOGP), torch.tensor(OLD), {"tau": 0.1, "cov_share": 0.4}
    found = chosen_tokens(kind, Tokens(logp, old, ADVANTAGE), options)
    again = chosen_tokens(kind, Tokens(logp[order], old[order], ADVANTAGE[order]), options)
    assert again.tolist() == found[order].tolist()
    assert 0 < int(found.sum()) < 6


@pytest.mark.parametrize(
    ("kind", "loss", "gradient"),
    [
        ("m2po", [-1.1, 0.0], [-1.1, 0.0]),
        ("clip_cov", [-1.1, 0.0], [-1.1, 0.0]),
        # Log-ratio x = -ln 2 at the second: 0.5 * 1 + x^2 / 2, and its derivative 0.5 + x.
        ("kl_cov", [-1.1, 0.5 + math.log(2) ** 2 / 2], [-1.1, 0.5 - math.log(2)]),
    ],
)
def test_loss_and_gradient_of_a_chosen_token(kind: PolicyLoss, loss: list[float], gradient: list[float]) -> None:
    logp = torch.tensor([math.log(1.1), math.log(0.5)], requires_grad=True)
    tokens = Tokens(logp, torch.zeros(2), torch.tensor([1.0, -1.0]), torch.tensor([0.0, 1.0]))
    each, _ = policy_loss(kind, tokens, LOSS_OPTIONS[kind])
    each.sum().backward()
    assert logp.grad is not None
    assert each.tolist() == pytest.approx(loss)
    assert logp.grad.tolist() == pytest.approx(gradient)


@pytest.mark.parametrize("kind", sorted({"gspo", "gmpo", "vespo", "opsm", "m2po", "clip_cov", "kl_cov"}))
def test_what_is_needed_of_the_whole_update_is_asked_for(kind: PolicyLoss) -> None:
    tokens = Tokens(torch.tensor(LOGP), torch.tensor(OLD), ADVANTAGE)
    with pytest.raises(ValueError, match="give what given_by_update returns"):
        policy_loss(kind, tokens, LOSS_OPTIONS[kind])
    given = given_by_update(kind, tokens, MEMBER, LOSS_OPTIONS[kind])
    policy_loss(kind, Tokens(tokens.logp, tokens.old, tokens.advantage, given), LOSS_OPTIONS[kind])
