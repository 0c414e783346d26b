"""DPO, weighted regression and rejection sampling on logged episodes: by hand, against autograd, and whole runs."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from forkgym.agents.base import Episode, Step
from forkgym.agents.records import EpisodeWriter
from forkgym.agents.tokenizers import ByteTokenizer
from forkgym.errors import ConfigError
from forkgym.trainers import sft
from forkgym.trainers.errors import NonFiniteError
from forkgym.trainers.models import load_model
from forkgym.trainers.offline import dpo, regression
from forkgym.trainers.offline.data import best_of, check_ids, logged_episodes, preference_pairs, tokenizers_differ
from forkgym.trainers.offline.regression import regression_weights
from forkgym.trainers.offline.sections import PairSection, WeightSection
from forkgym.trainers.recipe_file import load
from forkgym.trainers.run_folder import Result
from forkgym.trainers.sections import ModelSection

MakeEpisode = Callable[..., Episode]
TRAINERS: dict[str, Any] = {"rft-tiny": sft, "dpo-tiny": dpo, "awr-tiny": regression}


def fit(name: str, out: Path, runs: Path, *overrides: str, resume: bool = False) -> Result:
    recipe: Any = load(
        name,
        [
            "model={name: tiny-random, dtype: float32}",
            f"out={out}",
            f"data.runs=[{runs}]",
            "optimizer={lr: 3e-3}",
            "checkpoint={every: 100, keep: 1}",
            *overrides,
        ],
    )
    return TRAINERS[name].run(recipe, resume=resume)


def write(path: Path, *episodes: Episode) -> Path:
    with EpisodeWriter(path) as writer:
        for episode in episodes:
            writer.write(episode)
    return path


def test_the_loss_of_a_pair_worked_out_by_hand() -> None:
    policy = torch.tensor([-1.0, -2.0, -4.0, -4.0])
    reference = torch.tensor([-1.5, -1.0, -4.0, -4.0])
    loss, margin = dpo.preference(policy, reference, 0.5)
    assert margin.tolist() == [0.75, 0.0]  # 0.5 * ((-1 + 1.5) - (-2 + 1)); an unmoved policy has no margin
    assert loss.tolist() == pytest.approx([math.log(1 + math.exp(-0.75)), math.log(2)])


def logprob(model: Any, episode: Episode) -> torch.Tensor:
    """The log-probability of an episode's sampled tokens, from whole logits, one segment after the other."""
    total = torch.zeros(())
    for segment in episode.segments:
        ids = torch.tensor([segment.ids])
        scores = model(input_ids=ids).logits[0].log_softmax(-1)
        for t, was in enumerate(segment.sampled):
            if was:
                total = total + scores[t - 1, segment.ids[t]]
    return total


@pytest.mark.parametrize("micro_batch_tokens", [1, 9, 4096])
def test_the_gradient_is_that_of_the_loss_however_it_is_cut(
    tmp_path: Path, make_episode: MakeEpisode, micro_batch_tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two turns and two segments; the starting model is the model itself, then the model after one update."""
    good = make_episode("good", [[([5, 6], [7, 8]), ([9], [10])], [([5, 6, 1], [11])]], reward=1.0)
    bad = make_episode("bad", [[([5, 6], [20]), ([3, 4], [21, 22])]], reward=0.0)
    file = write(tmp_path / "logged.jsonl", good, bad)
    gradients: list[dict[str, torch.Tensor]] = []

    def step(self: Any) -> None:
        with torch.no_grad():
            for group in self.param_groups:
                for p in group["params"]:
                    p -= 0.05 * p.grad

    monkeypatch.setattr(torch.optim.AdamW, "step", step)
    real = dpo.supervised_update

    def spy(scorer: Any, *rest: Any) -> Any:
        update = real(scorer, *rest)
        gradients.append({name: p.grad.clone() for name, p in scorer.model.named_parameters()})
        return update

    monkeypatch.setattr(dpo, "supervised_update", spy)
    result = fit(
        "dpo-tiny", tmp_path / "run", file, "steps=2", "pairs={beta: 0.5}", "pairs_per_step=1",
        "optimizer={max_grad_norm: 1e9}", f"batch.micro_batch_tokens={micro_batch_tokens}",
    )  # fmt: skip
    model = load_model(ModelSection(name="tiny-random", dtype="float32"), 0).model
    with torch.no_grad():
        start = [logprob(model, e) for e in (good, bad)]
    losses: list[float] = []
    for found in gradients:
        gap = (logprob(model, good) - start[0]) - (logprob(model, bad) - start[1])
        loss = torch.log1p(torch.exp(-0.5 * gap))
        losses.append(loss.item())
        model.zero_grad()
        loss.backward()
        for name, p in model.named_parameters():
            assert torch.allclose(found[name], p.grad, atol=1e-6), name
        with torch.no_grad():
            for p in model.parameters():
                p -= 0.05 * p.grad
    assert result.metrics["loss"] == pytest.approx(losses[-1], abs=1e-5)
    assert losses == [pytest.approx(math.log(2), abs=1e-5), losses[-1]]
    assert losses[-1] < math.log(2)


def test_pairs_are_made_of_one_group_one_prompt_and_different_rewards(make_episode: MakeEpisode) -> None:
    turn = ([1, 2], [3])
    best = make_episode("best", [[turn]], reward=1.0)
    equal = make_episode("equal", [[([1, 2], [5])]], reward=1.0)
    half = make_episode("half", [[([1, 2], [6])]], reward=0.5)
    other_prompt = make_episode("prompt", [[([1, 9], [6])]], reward=0.0)
    elsewhere = make_episode("elsewhere", [[([1, 2], [7])]], reward=0.0, group="h")
    every = [half, best, equal, other_prompt, elsewhere]
    found = {pair.key for pair in preference_pairs(every, PairSection(per_group=99), 0)}
    assert found == {"best > half", "equal > half"}
    by_task = {pair.key for pair in preference_pairs(every, PairSection(per_group=99, within="task"), 0)}
    assert by_task == found | {"best > elsewhere", "equal > elsewhere", "half > elsewhere"}
    wide = {pair.key for pair in preference_pairs(every, PairSection(per_group=99, within="task", margin=0.5), 0)}
    assert wide == {"best > elsewhere", "equal > elsewhere"}
    assert len(preference_pairs(every, PairSection(per_group=1, within="task"), 0)) == 1
    with pytest.raises(ConfigError, match="no pair among 2 episodes"):
        preference_pairs([best, equal], PairSection(), 0)


def test_weights_of_regression_worked_out_by_hand(make_episode: MakeEpisode) -> None:
    rewards = {"a": (1.0, "g"), "b": (0.0, "g"), "c": (0.0, "h"), "d": (0.0, "h")}
    every = [make_episode(id, [[([1], [2])]], reward=r, group=g) for id, (r, g) in rewards.items()]
    e = math.e
    assert regression_weights(every, WeightSection(beta=0.5)).tolist() == pytest.approx([e, 1 / e, 1, 1])
    loo = WeightSection(beta=0.5, baseline="loo", max=5.0)
    assert regression_weights(every, loo).tolist() == pytest.approx([5.0, e**-2, 1, 1])  # exp(2) is cut
    assert regression_weights(every, WeightSection(beta=0.5, kind="reward")).tolist() == pytest.approx([e**2, 1, 1, 1])


def test_rejection_keeps_good_and_different_episodes_of_each_task(make_episode: MakeEpisode) -> None:
    good = [make_episode(f"{n}", [[([1], [2 + n])]], reward=1.0) for n in range(3)]
    again, bad = make_episode("again", [[([1], [2])]], reward=1.0), make_episode("bad", [[([1], [9])]], reward=0.0)
    assert {e.id for e in best_of([*good, again, bad], 1.0, None, 0)} == {"0", "1", "2"}
    assert len(best_of([*good, again, bad], 1.0, 2, 0)) == 2
    assert len(best_of([*good, again, bad], None, None, 0)) == 4


@pytest.mark.parametrize("name", TRAINERS)
def test_each_learns_the_token_game_from_logged_episodes_alone(
    tmp_path: Path, logged: Path, plays: Callable[[Path | None], float], name: str
) -> None:
    least = "data.min_reward=0.66" if name == "rft-tiny" else "seed=0"
    more = {"dpo-tiny": ["pairs={per_group: 16}", "pairs_per_step=16"], "awr-tiny": ["weight={beta: 0.1}"]}
    fit(name, tmp_path / "run", logged, least, "steps=40", *more.get(name, []))
    before, after = plays(None), plays(tmp_path / "run")
    assert after > before + 0.2, (before, after)


@pytest.mark.parametrize("name", TRAINERS)
def test_a_resumed_run_ends_with_the_same_bytes(tmp_path: Path, logged: Path, name: str) -> None:
    least = ["data.min_reward=0.3"] if name == "rft-tiny" else []
    straight = fit(name, tmp_path / "straight", logged, *least, "steps=4")
    fit(name, tmp_path / "parts", logged, *least, "steps=2")
    resumed = fit(name, tmp_path / "parts", logged, *least, "steps=4", resume=True)
    files = [run.checkpoint / "weights.safetensors" for run in (straight, resumed)]
    assert files[0].read_bytes() == files[1].read_bytes()
    assert straight.metrics["loss"] == resumed.metrics["loss"]


def test_a_resumed_run_refuses_other_data(tmp_path: Path, logged: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(logged, copy)
    fit("awr-tiny", tmp_path / "run", copy, "steps=1")
    (copy / "episodes" / "train-000001.jsonl").unlink()
    with pytest.raises(ConfigError, match="they have changed"):
        fit("awr-tiny", tmp_path / "run", copy, "steps=2", resume=True)


@pytest.mark.parametrize("name", TRAINERS)
def test_numbers_that_are_not_finite_stop_the_run_and_name_an_episode(
    tmp_path: Path, logged: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def poisoned(section: ModelSection, seed: int) -> Any:
        language = load_model(section, seed)
        with torch.no_grad():
            language.model.get_output_embeddings().weight[0] = math.nan
        return language

    monkeypatch.setattr("forkgym.trainers.offline.fit.load_model", poisoned)
    least = ["data.min_reward=0.3"] if name == "rft-tiny" else []
    with pytest.raises(NonFiniteError, match=r"in episode '0:[abc]#"):
        fit(name, tmp_path / "run", logged, *least)


def test_failed_episodes_are_no_data(tmp_path: Path, make_episode: MakeEpisode) -> None:
    good = make_episode("x", [[([1], [2])]])
    failed = make_episode("x", [[([1], [3])]], reward=None, status="failed", reason="sandbox")
    cut = make_episode("cut", [[([1], [4])]], reward=0.0, status="truncated", reason="turns")
    file = write(tmp_path / "e.jsonl", failed, good, cut)
    assert [e.id for e in logged_episodes([str(file)], ByteTokenizer())] == ["0:x", "0:cut"]
    assert [e.id for e in logged_episodes([str(file)], ByteTokenizer(), "drop")] == ["0:x"]
    twice = logged_episodes([str(file), str(file)], ByteTokenizer())
    assert [(e.id, e.group) for e in twice][::2] == [("0:x", "0:g"), ("1:x", "1:g")]


def test_what_cannot_be_learnt_from_is_refused(tmp_path: Path, make_episode: MakeEpisode, logged: Path) -> None:
    tokens = ByteTokenizer()
    with pytest.raises(ConfigError, match="has neither"):
        logged_episodes([str(tmp_path)], tokens)
    twice = write(tmp_path / "twice.jsonl", make_episode("x", [[([1], [2])]]), make_episode("x", [[([1], [3])]]))
    with pytest.raises(ConfigError, match="two scored episodes 'x'"):
        logged_episodes([str(twice)], tokens)
    failed = make_episode("f", [[([1], [2])]], reward=None, status="failed", reason="engine")
    with pytest.raises(ConfigError, match="hold no episode that was scored"):
        logged_episodes([str(write(tmp_path / "failed.jsonl", failed))], tokens)
    with pytest.raises(ConfigError, match="none of the 96 scored episodes"):
        fit("rft-tiny", tmp_path / "run", logged, "data.min_reward=2.0")


def test_episodes_of_another_tokenizer_are_refused(tmp_path: Path, make_episode: MakeEpisode, logged: Path) -> None:
    other = ByteTokenizer(merges=[(b"a", b"b")])
    assert tokenizers_differ(ByteTokenizer(), ByteTokenizer()) == ""
    assert "ids here" in tokenizers_differ(ByteTokenizer(), other)
    swapped = ByteTokenizer(merges=[(b"b", b"a")])
    assert tokenizers_differ(other, swapped) == "id 256 is 'ab' here, 'ba' there"
    with pytest.raises(ConfigError, match="whose tokenizer is another one"):
        logged_episodes([str(logged)], other)
    far = make_episode("far", [[([1], [9000])]])
    with pytest.raises(ConfigError, match="has the id 9000"):
        check_ids([far], ByteTokenizer(), "log")
    spelled = make_episode("s", [[([1], list(b"ls -l"))]])
    spelled.steps.append(Step(0, "ls -l", {}, "", 0.0, 0.0))
    check_ids([spelled], ByteTokenizer(), "log")
    spelled.steps[0] = Step(0, "cat x", {}, "", 0.0, 0.0)
    with pytest.raises(ConfigError, match="none of 1 recorded texts"):
        check_ids([spelled], ByteTokenizer(), "log")


@pytest.mark.parametrize(
    ("name", "override", "message"),
    [
        ("dpo-tiny", "batch.epochs=2", "one update is made per step"),
        ("awr-tiny", "env.split=test", "nothing is played"),
        ("rft-tiny", "agent.name=bash", "remove the section agent"),
        ("rft-tiny", "data.path=x", "not both"),
        ("sft-tiny", "data.max_per_task=2", "about data.runs"),
        ("awr-tiny", "weight={kind: reward, baseline: loo}", "belongs to weight.kind advantage"),
        ("dpo-tiny", "data.runs=[]", "at least 1"),
        ("dpo-tiny", "pairs.beta=0", "greater than 0"),
    ],
)
def test_options_without_effect_are_refused(name: str, override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(name, [override])


def test_metrics_tell_what_was_learnt(tmp_path: Path, logged: Path) -> None:
    fit("dpo-tiny", tmp_path / "run", logged, "steps=1")
    [row] = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert row["loss"] == pytest.approx(math.log(2))  # the policy is still the starting model
    assert row["margin"] == pytest.approx(0.0, abs=1e-5)
    assert {"accuracy", "log_ratio/chosen", "log_ratio/rejected", "grad_norm", "entropy"} <= set(row)
