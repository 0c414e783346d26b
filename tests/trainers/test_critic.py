"""Sequences, estimates and the critic, against values worked out by hand and the fixtures F8 and F10."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from forkgym.agents.base import Episode, Step
from forkgym.trainers.batch import build_batch
from forkgym.trainers.critic import (
    Critic,
    critic_update,
    explained_variance,
    make_critic,
    privileged_inputs,
    states,
    value_loss,
)
from forkgym.trainers.errors import TrainerError
from forkgym.trainers.loss_sections import GaeSection
from forkgym.trainers.models import load_model
from forkgym.trainers.policy_losses import Tokens, policy_loss
from forkgym.trainers.recipe import PpoRecipe
from forkgym.trainers.sections import CriticSection, ModelSection
from forkgym.trainers.sequences import Estimates, Sequences, estimate, rewards
from forkgym.trainers.update import Scorer, make_optimizer

MakeEpisode = Callable[..., Episode]
TWO_TURNS = [([0], [1, 2]), ([3, 4], [5, 6])]


def estimates(episodes: list[Episode], values: list[float], kind: str = "final", **options: Any) -> Estimates:
    batch = build_batch(episodes)
    sequences = Sequences.of(batch)
    reward = rewards(sequences, batch, episodes, kind)
    return estimate(sequences, reward, torch.tensor(values), GaeSection.model_validate({"lam": 0.95, **options}))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.0, 0.0, 0.0, 0.0], [0.857375, 0.9025, 0.95, 1.0]),
        ([0.1, 0.2, 0.3, 0.4], [0.799675, 0.7365, 0.67, 0.6]),
    ],
)
def test_f8_observations_are_skipped(make_episode: MakeEpisode, values: list[float], expected: list[float]) -> None:
    found = estimates([make_episode("e", [TWO_TURNS])], values)
    assert found.advantage.tolist() == pytest.approx(expected, abs=1e-6)


def test_an_episode_in_two_segments_is_one_sequence(make_episode: MakeEpisode) -> None:
    whole = make_episode("e", [TWO_TURNS])
    parts = make_episode("e", [TWO_TURNS[:1], [([7, 8], [5, 6])]])
    parts.segments[1].turn = [1] * 4
    both = [estimates([episode], [0.1, 0.2, 0.3, 0.4]) for episode in (whole, parts)]
    assert torch.equal(both[0].advantage, both[1].advantage)
    assert torch.equal(both[0].target, both[1].target)


def test_segments_that_interleave_are_read_in_the_order_of_turns(make_episode: MakeEpisode) -> None:
    """A side conversation in turn 1, kept as a row of its own after a row with turns 0 and 2."""
    episode = make_episode("e", [[([0], [1]), ([2], [3])], [([4], [5])]])
    episode.segments[0].turn, episode.segments[1].turn = [0, 0, 2, 2], [1, 1]
    found = estimates([episode], [0.0, 0.0, 0.0])
    assert found.advantage.tolist() == pytest.approx([0.9025, 1.0, 0.95])  # turns 0, 2 and 1


def test_a_turn_is_one_action(make_episode: MakeEpisode) -> None:
    """delta_1 = 1 - 0.3; A_0 = (0.3 - 0.1) + 0.95 * 0.7 = 0.865; values of later tokens of a turn are not read."""
    found = estimates([make_episode("e", [TWO_TURNS])], [0.1, 9.0, 0.3, 9.0], level="turn")
    assert found.advantage.tolist() == pytest.approx([0.865, 0.865, 0.7, 0.7])
    assert found.valued.tolist() == [True, False, True, False]
    assert found.target[found.valued].tolist() == pytest.approx([1.0, 1.0])


def test_lambda_by_length(make_episode: MakeEpisode) -> None:
    """F11: 1 - 1 / max(0.5 * 4, 1) = 0.5 for the episode of four tokens, 0 for the one of two."""
    episodes = [make_episode("e", [TWO_TURNS]), make_episode("f", [TWO_TURNS[:1]])]
    found = estimates(episodes, [0.0] * 6, lam=None, alpha=0.5)
    assert found.advantage.tolist() == pytest.approx([0.125, 0.25, 0.5, 1.0, 0.0, 1.0])


def test_rewards_of_turns_stand_at_their_last_token(make_episode: MakeEpisode) -> None:
    episode = make_episode("e", [TWO_TURNS], reward=1.0)
    episode.steps = [Step(turn, "", {}, "", reward, 0.0) for turn, reward in ((0, 0.25), (1, 0.5), (2, 0.25))]
    batch = build_batch([episode])
    found = rewards(Sequences.of(batch), batch, [episode], "turns")
    assert found.tolist() == [[0.0, 0.25, 0.0, 0.75]]  # turn 2 had no token of its own
    assert rewards(Sequences.of(batch), batch, [episode], "final").tolist() == [[0.0, 0.0, 0.0, 1.0]]


def test_a_cut_off_episode_may_go_on_with_a_value(make_episode: MakeEpisode) -> None:
    episodes = [make_episode("e", [TWO_TURNS[:1]], reward=0.0)]
    batch = build_batch(episodes)
    sequences = Sequences.of(batch)
    reward = rewards(sequences, batch, episodes, "final")
    found = estimate(sequences, reward, torch.zeros(2), GaeSection(lam=0.5, gamma=0.5), torch.tensor([0.8]))
    assert found.target.tolist() == pytest.approx([0.2, 0.4])
    assert found.advantage.tolist() == pytest.approx([0.1, 0.4])


def gradient(baseline: Callable[[int, int], float]) -> float:
    """Of the expected reward by the logit of action 1, from all four outcomes weighted by their probability."""
    logit = torch.tensor(math.log(0.6 / 0.4), requires_grad=True)
    total = torch.zeros(())
    section = GaeSection(lam=1.0)
    for z, p_z in ((1, 0.7), (0, 0.3)):
        for action in (1, 0):
            episode = Episode("e", "t", "g", "test", 0, "finished", reward=float(action == z))
            batch = build_batch([_one_token(episode)])
            sequences = Sequences.of(batch)
            reward = rewards(sequences, batch, [episode], "final")
            found = estimate(sequences, reward, torch.tensor([baseline(z, action)]), section)
            p = torch.sigmoid(logit) if action else 1 - torch.sigmoid(logit)
            tokens = Tokens(p.log()[None], p.log().detach()[None], found.advantage)
            loss, _ = policy_loss("reinforce", tokens, {})
            total = total + p_z * p.detach() * loss.sum()
    total.backward()
    assert logit.grad is not None
    return -logit.grad.item()


def _one_token(episode: Episode) -> Episode:
    from forkgym.agents.base import Completion, Segment

    segment = Segment()
    segment.append_prompt([0], 0)
    segment.append_completion(Completion((1,), (-1.0,), "stop"), 0)
    episode.segments.append(segment)
    return episode


@pytest.mark.parametrize(
    ("baseline", "expected"),
    [
        (lambda z, a: 0.0, 0.096),
        (lambda z, a: 0.9 * z - 0.4, 0.096),  # any function of the hidden state: no bias
        (lambda z, a: 0.5 * (a == z), 0.048),  # one that sees the outcome halves the gradient,
        (lambda z, a: float(a == z), 0.0),  # or removes it
    ],
)
def test_f10_a_baseline_may_know_the_hidden_state_and_not_the_outcome(
    baseline: Callable[[int, int], float], expected: float
) -> None:
    assert gradient(baseline) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("name", ["reward", "verdict", "outcome"])
def test_f10_no_input_tells_the_outcome(name: str) -> None:
    with pytest.raises(ValidationError, match="'fraction', 'score', 'resolved', 'failed'"):
        PpoRecipe.model_validate({"algorithm": "ppo", "steps": 1, "out": "x", "critic": {"inputs": [name]}})


def block(**changes: Any) -> dict[str, Any]:
    known = {"passed": ["a"], "failed": ["b"], "fraction": 0.5, "score": 0.0, "resolved": False, "files_changed": 2}
    return {**known, "gold_distance": 0.25, "stage": "ok", **changes}


def test_inputs_are_those_of_the_turn(make_episode: MakeEpisode) -> None:
    episode = make_episode("e", [TWO_TURNS])
    episode.privileged = [block(), block(fraction=1.0, resolved=True, failed=[], gold_distance=None)]
    names = ("fraction", "resolved", "failed", "files_changed", "gold_distance")
    found = privileged_inputs(build_batch([episode]), [episode], names)
    first, second = [0.5, 0.0, math.log(2), math.log(3), 0.25, 1.0], [1.0, 1.0, 0.0, math.log(3), 1.0, 1.0]
    for row, expected in zip(found.tolist(), [first, first, second, second], strict=True):
        assert row == pytest.approx(expected)


def test_a_turn_without_a_record_is_marked_unknown(make_episode: MakeEpisode) -> None:
    episode = make_episode("e", [TWO_TURNS])
    episode.privileged = [block()]
    found = privileged_inputs(build_batch([episode]), [episode], ("fraction",))
    assert found.tolist() == [[0.5, 1.0], [0.5, 1.0], [0.0, 0.0], [0.0, 0.0]]


def test_an_episode_without_any_record_is_refused(make_episode: MakeEpisode) -> None:
    episode = make_episode("e", [TWO_TURNS])
    with pytest.raises(TrainerError, match=r"episode 'e' has no privileged record.*'test' must take the option"):
        privileged_inputs(build_batch([episode]), [episode], ("fraction",))


@pytest.mark.parametrize(("clip", "expected"), [(None, 0.02), (0.2, 0.045), (0.4, 0.02)])
def test_value_loss(clip: float | None, expected: float) -> None:
    """V 0.8, before 0.5, R 1: plain 0.2^2 / 2; cut to 0.7, 0.3^2 / 2, which is worse."""
    loss = value_loss(torch.tensor([0.8]), torch.tensor([0.5]), torch.tensor([1.0]), clip)
    assert loss.tolist() == pytest.approx([expected])


def test_explained_variance() -> None:
    target = torch.tensor([0.0, 1.0, 0.0, 1.0])
    assert explained_variance(target, target + 3) == pytest.approx(1.0)
    assert explained_variance(target, torch.full((4,), 0.5)) == pytest.approx(0.0)
    assert explained_variance(torch.ones(4), target) == 0.0


def learn(batch: Any, section: CriticSection, micro: int) -> tuple[float, dict[str, torch.Tensor]]:
    language = load_model(ModelSection(name="tiny-random"), 0)
    critic = make_critic(language, section, 1)
    torch.manual_seed(2)
    torch.nn.init.normal_(critic.value.weight)
    scorer = Scorer(language.model, torch.float32, 1.0, micro)
    tokens = int(batch.mask.sum())
    found = Estimates(torch.zeros(tokens), torch.linspace(-1, 1, tokens), torch.ones(tokens, dtype=torch.bool))
    inputs = torch.linspace(0, 1, tokens * 2).reshape(tokens, 2)
    hidden = None if section.trunk == "own" else states(language.model.base_model, batch, torch.float32, micro)[0]
    optimizer = make_optimizer(critic, section.optimizer)
    done = critic_update(critic, optimizer, batch, hidden, inputs, torch.zeros(tokens), found, section, scorer)
    return done.loss, {name: p.detach().clone() for name, p in critic.named_parameters()}


@pytest.mark.parametrize("trunk", ["own", "shared"])
def test_check_4_micro_batches_add_up_to_the_same_update(make_episode: MakeEpisode, trunk: Any) -> None:
    episodes = [make_episode(str(n), [[([n], [n + 1] * (n + 1)), ([9], [n])]], reward=float(n)) for n in range(4)]
    section = CriticSection(trunk=trunk, inputs=("fraction",), hidden=8, hindsight=0.5)
    whole, weights = learn(build_batch(episodes), section, 10_000)
    cut, others = learn(build_batch(episodes), section, 3)
    assert cut == pytest.approx(whole, abs=1e-6)
    for name, weight in weights.items():
        assert torch.allclose(weight, others[name], atol=2e-6), name


def test_an_own_trunk_is_a_copy_and_a_shared_one_is_not_trained(make_episode: MakeEpisode) -> None:
    language = load_model(ModelSection(name="tiny-random"), 0)
    before = {name: p.detach().clone() for name, p in language.model.named_parameters()}
    own = make_critic(language, CriticSection(trunk="own", train_layers=1), 0)
    assert any(name.startswith("trunk.") and p.requires_grad for name, p in own.named_parameters())
    assert not any("layers.0." in name and p.requires_grad for name, p in own.named_parameters())
    learn(build_batch([make_episode("e", [TWO_TURNS])]), CriticSection(inputs=("fraction",)), 100)
    assert all(torch.equal(p, before[name]) for name, p in language.model.named_parameters())
    assert not any(p.grad is not None for p in language.model.parameters())


def test_values_are_of_the_state_before_the_token(make_episode: MakeEpisode) -> None:
    """Neither a token itself nor what follows changes the state that its value is read from."""
    language = load_model(ModelSection(name="tiny-random"), 0)
    batch = build_batch([make_episode("e", [TWO_TURNS])])
    first, _ = states(language.model.base_model, batch, torch.float32, 100)
    other = replace(batch, ids=batch.ids.clone())
    other.ids[0, 6] = 40  # the last sampled token
    second, _ = states(language.model.base_model, other, torch.float32, 100)
    assert torch.equal(first, second)


def test_a_new_critic_says_zero() -> None:
    value, outcome = Critic(4, 2, 3)(torch.randn(5, 4), torch.randn(5, 2))
    assert value.tolist() == [0.0] * 5
    assert outcome is None
