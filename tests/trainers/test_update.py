"""One update on a real model: the same weights however the batch is cut, clear errors, learning rates."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from forkgym.agents.base import Episode
from forkgym.agents.models import LanguageModel
from forkgym.trainers.base import Batch
from forkgym.trainers.batch import build_batch
from forkgym.trainers.errors import NonFiniteError
from forkgym.trainers.kinds import LOSS_OPTIONS, PolicyLoss
from forkgym.trainers.models import load_model
from forkgym.trainers.recipe import GrpoRecipe
from forkgym.trainers.sections import ModelSection, OptimizerSection
from forkgym.trainers.update import (
    Frozen,
    Scorer,
    learning_rate,
    make_optimizer,
    policy_update,
    supervised_update,
)

MakeEpisode = Callable[..., Episode]
MakeRecipe = Callable[..., GrpoRecipe]


@pytest.fixture(scope="module")
def language() -> LanguageModel:
    return load_model(ModelSection(name="tiny-random"), seed=3)


@pytest.fixture
def batch(make_episode: MakeEpisode) -> Batch:
    """Four episodes of uneven length, the second in two segments, with advantages as given."""
    built = build_batch(
        [
            make_episode("a", [[([1, 2], [3, 4, 5]), ([9], [7])]]),
            make_episode("b", [[([1, 2], [6])], [([1, 2, 3, 4, 5, 6], [8, 8])]]),
            make_episode("c", [[([1], [2, 2, 2, 2, 2, 2])]]),
            make_episode("d", [[([5, 5], [4])]]),
        ]
    )
    built.behaviour = torch.where(built.mask, -5.5, 0.0)
    built.advantage = torch.where(built.mask, torch.tensor([1.0, -1.0, 0.5, -0.3])[built.member][:, None], 0.0)
    return built


def rows_of(batch: Batch) -> torch.Tensor:
    return torch.arange(len(batch.lengths))


def update(language: LanguageModel, batch: Batch, recipe: GrpoRecipe, micro: int, rows: torch.Tensor) -> list[Any]:
    """Loss, gradient norm and weights after one update of a copy of the model."""
    model = copy.deepcopy(language.model)
    optimizer = make_optimizer(model, recipe.optimizer)
    scorer = Scorer(model, torch.float32, 1.0, micro)
    done = policy_update(scorer, optimizer, batch, rows, Frozen(), recipe)
    return [done.loss, done.grad_norm, torch.cat([p.detach().flatten() for p in model.parameters()])]


@pytest.mark.parametrize(
    "objective",
    [
        {"aggregation": "token_mean"},
        {"aggregation": "seq_mean_token_mean"},
        {"aggregation": "seq_mean_token_sum_norm", "l_max": 10},
        {"loss": "gspo", "clip_low": 0.5, "clip_high": 0.5},
        {"loss": "gmpo"},
        {"loss": "dro"},
    ],
)
@pytest.mark.parametrize("micro", [1, 9, 20])
def test_check_5_micro_batches_and_row_order_do_not_matter(
    language: LanguageModel, batch: Batch, recipe: MakeRecipe, objective: dict[str, Any], micro: int
) -> None:
    setup = recipe(objective=objective, optimizer={"lr": 1e-4, "eps": 1e-3})
    loss, norm, weights = update(language, batch, setup, 10_000, rows_of(batch))
    other_loss, other_norm, other_weights = update(language, batch, setup, micro, rows_of(batch).flip(0))
    assert other_loss == pytest.approx(loss, abs=1e-6)
    assert other_norm == pytest.approx(norm, rel=1e-5)
    assert torch.allclose(other_weights, weights, atol=1e-6)


@pytest.mark.parametrize("loss", LOSS_OPTIONS)
def test_check_5_for_every_loss_with_episodes_spread_over_micro_batches(
    language: LanguageModel, batch: Batch, recipe: MakeRecipe, loss: PolicyLoss
) -> None:
    """Episode b has two segments, and one row per micro-batch splits it; their order does not matter either."""
    setup = recipe(objective={"loss": loss}, optimizer={"lr": 1e-4, "eps": 1e-3})
    whole, norm, weights = update(language, batch, setup, 10_000, rows_of(batch))
    other, other_norm, other_weights = update(language, batch, setup, 1, rows_of(batch).flip(0))
    assert norm > 0
    assert other == pytest.approx(whole, abs=1e-6)
    assert other_norm == pytest.approx(norm, rel=1e-5)
    assert torch.allclose(other_weights, weights, atol=1e-6)


def test_rows_without_advantage_count_in_the_denominator_but_are_not_computed(
    language: LanguageModel, batch: Batch, recipe: MakeRecipe
) -> None:
    batch.advantage[batch.member == 2] = 0.0
    setup = recipe()
    model = copy.deepcopy(language.model)
    scorer = Scorer(model, torch.float32, 1.0, 10_000)
    optimizer = make_optimizer(model, setup.optimizer)
    done = policy_update(scorer, optimizer, batch, rows_of(batch), Frozen(), setup)
    tokens, computed = int(batch.mask.sum()), int(batch.mask[batch.member != 2].sum())
    assert done.stats.flat("logp").numel() == computed == tokens - 6
    by_hand = 0.0
    for row in rows_of(batch).tolist():
        if batch.member[row] != 2:
            part = scorer_before(language, batch, row)
            a = batch.advantage[row][batch.mask[row]]
            r = (part - batch.behaviour[row][batch.mask[row]]).exp()
            by_hand += -torch.minimum(r * a, r.clamp(0.8, 1.2) * a).sum().item() / tokens
    assert done.loss == pytest.approx(by_hand, abs=1e-5)


def scorer_before(language: LanguageModel, batch: Batch, row: int) -> torch.Tensor:
    length = int(batch.lengths[row])
    ids = batch.ids[row, :length]
    scores = torch.log_softmax(language.model(input_ids=ids[None]).logits[0].detach(), -1)
    picked = batch.mask[row, :length].nonzero()[:, 0]
    return scores[picked - 1, ids[picked]]


def test_a_kl_term_pulls_towards_the_reference(language: LanguageModel, batch: Batch, recipe: MakeRecipe) -> None:
    batch.advantage = torch.zeros_like(batch.advantage)
    model = copy.deepcopy(language.model)
    setup = recipe(objective={"kl": {"coefficient": 1.0, "kind": "k2"}}, optimizer={"lr": 1e-3})
    scorer = Scorer(model, torch.float32, 1.0, 10_000)
    reference = scorer.whole(batch) + torch.where(batch.mask, 0.5, 0.0)
    optimizer = make_optimizer(model, setup.optimizer)
    before = (scorer.whole(batch) - reference)[batch.mask].abs().mean().item()
    for _ in range(10):
        policy_update(scorer, optimizer, batch, rows_of(batch), Frozen(reference=reference), setup)
    after = (scorer.whole(batch) - reference)[batch.mask].abs().mean().item()
    assert before == pytest.approx(0.5, abs=1e-5)
    assert after < 0.3


def test_an_off_policy_filter_drops_tokens_the_sampler_thought_likely(
    language: LanguageModel, batch: Batch, recipe: MakeRecipe
) -> None:
    setup = recipe(objective={"old_logprobs": "recompute", "correction": {"kind": "icepop", "low": 0.5, "high": 2.0}})
    model = copy.deepcopy(language.model)
    scorer = Scorer(model, torch.float32, 1.0, 10_000)
    old = scorer.whole(batch)
    batch.behaviour = torch.where(batch.mask, old + 5.0, 0.0)
    done = policy_update(scorer, make_optimizer(model, setup.optimizer), batch, rows_of(batch), Frozen(old=old), setup)
    assert done.loss == 0.0
    assert done.grad_norm == 0.0


def test_supervised_loss_is_the_mean_over_sampled_tokens(language: LanguageModel, batch: Batch) -> None:
    model = copy.deepcopy(language.model)
    optimizer = make_optimizer(model, OptimizerSection(lr=1e-2))
    scorer = Scorer(model, torch.float32, 1.0, 9)
    expected = -scorer.whole(batch)[batch.mask].mean().item()
    first = supervised_update(scorer, optimizer, batch, 1.0)
    losses = [supervised_update(scorer, optimizer, batch, 1.0).loss for _ in range(10)]
    assert first.loss == pytest.approx(expected, abs=1e-5)
    assert losses[-1] < first.loss / 2


def test_a_broken_model_is_named_and_not_trained_further(
    language: LanguageModel, batch: Batch, recipe: MakeRecipe
) -> None:
    model = copy.deepcopy(language.model)
    model.base_model.norm.weight.data.fill_(math.nan)
    setup = recipe()
    kept = [p.detach().clone() for p in model.parameters()]
    with pytest.raises(NonFiniteError, match="episode '"):
        policy_update(
            Scorer(model, torch.float32, 1.0, 10_000),
            make_optimizer(model, setup.optimizer),
            batch,
            rows_of(batch),
            Frozen(),
            setup,
        )
    assert all(torch.equal(a, b) or a.isnan().any() for a, b in zip(kept, model.parameters(), strict=True))


def test_half_precision_stays_near_single(language: LanguageModel, batch: Batch) -> None:
    single, half = (
        Scorer(language.model, dtype, 1.0, 10_000).whole(batch) for dtype in (torch.float32, torch.bfloat16)
    )
    difference = (single - half)[batch.mask].abs().max().item()
    assert 0 < difference < 0.02
    assert all(p.dtype == torch.float32 for p in language.model.parameters())


def test_learning_rates() -> None:
    def rates(**options: Any) -> list[float]:
        return [learning_rate(OptimizerSection(lr=1.0, **options), step, 6) for step in range(1, 7)]

    assert rates() == [1.0] * 6
    assert rates(warmup_steps=3) == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    assert rates(schedule="linear", warmup_steps=2) == pytest.approx([1 / 3, 2 / 3, 1.0, 0.75, 0.5, 0.25])
    assert rates(schedule="cosine") == pytest.approx([1.0, 0.933013, 0.75, 0.5, 0.25, 0.066987], abs=1e-6)


def test_decay_applies_to_matrices_only(language: LanguageModel) -> None:
    optimizer = make_optimizer(language.model, OptimizerSection(weight_decay=0.1))
    matrices, vectors = optimizer.param_groups
    assert (matrices["weight_decay"], vectors["weight_decay"]) == (0.1, 0.0)
    assert all(p.dim() > 1 for p in matrices["params"])
    assert len(vectors["params"]) == 5


def test_a_square_penalty_also_moves_what_has_no_advantage(
    language: LanguageModel, batch: Batch, recipe: MakeRecipe
) -> None:
    batch.advantage = torch.zeros_like(batch.advantage)
    norms = {
        loss: update(language, batch, recipe(objective={"loss": loss}), 20, rows_of(batch))[1]
        for loss in ("ppo", "gspo", "cispo", "dro")
    }
    assert norms["dro"] > 0
    assert [norms[loss] for loss in ("ppo", "gspo", "cispo")] == [None] * 3
