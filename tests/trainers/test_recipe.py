"""Recipes: every mistake is named with its place; every option is honoured or refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from forkgym.errors import ConfigError
from forkgym.trainers.describe import resolved
from forkgym.trainers.recipe import RECIPES
from forkgym.trainers.recipe_file import bundled, load, load_grpo, load_sft

MINIMAL = "algorithm: grpo\nsteps: 3\nout: runs/x\n"


def write(folder: Path, text: str) -> Path:
    path = folder / "r.yaml"
    path.write_text(text)
    return path


def test_defaults_and_overrides(tmp_path: Path) -> None:
    recipe = load_grpo(write(tmp_path, MINIMAL), ["optimizer.lr=3e-6", "env.options.max_turns=4", "model.name=a/b"])
    assert recipe.optimizer.lr == 3e-6
    assert recipe.env.options == {"max_turns": 4}
    assert recipe.model.name == "a/b"
    assert recipe.rollout.group_size == 8


def test_an_exponent_without_a_dot_is_a_number(tmp_path: Path) -> None:
    recipe = load_grpo(write(tmp_path, MINIMAL + "optimizer:\n  lr: 2e-4\n  betas: [0.8, 0.9]\n"))
    assert recipe.optimizer.lr == 2e-4
    assert recipe.optimizer.betas == (0.8, 0.9)


def test_an_unknown_key_names_file_line_and_near_miss(tmp_path: Path) -> None:
    path = write(tmp_path, MINIMAL + "optimizer:\n  lr: 0.1\n  max_gradnorm: 2\n")
    with pytest.raises(ConfigError) as error:
        load(path)
    assert str(error.value).startswith(
        f"{path}:6: unknown key 'max_gradnorm' in optimizer; did you mean 'max_grad_norm'? Known: lr, betas"
    )


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    path = write(tmp_path, "algorithm: grpo\nout: x\nstep: 3\noptimizer:\n  lr: fast\n")
    with pytest.raises(ConfigError) as error:
        load(path, ["rollout.group_size=0"])
    lines = str(error.value).splitlines()
    assert f"{path}:3: unknown key 'step'; did you mean 'steps'?" in str(error.value)
    assert any(line == f"{path}: steps is missing; add it" for line in lines)
    assert any(line.startswith(f"{path}:5: optimizer.lr:") and "'fast'" in line for line in lines)
    assert any(line.startswith("override 'rollout.group_size=0': rollout.group_size:") for line in lines)
    assert len(lines) == 4


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["advantage.estimator=rloo", "advantage.std=sample"], "rloo does not divide"),
        (["advantage.estimator=dr_grpo", "advantage.eps=0.1"], "eps has no effect"),
        (["advantage.rounds=2"], "dapo only"),
        (["rollout.group_size=1"], "group_size is 1, but grpo compares the members of a group; give 2"),
        (["objective.l_max=7"], "l_max is needed by"),
        (["objective.aggregation=seq_mean_token_sum_norm"], "l_max is needed by"),
        (["objective.correction.kind=tis"], "already is against the sampler"),
        (["objective.correction.level=token"], "have no effect"),
        (["objective.old_logprobs=recompute", "objective.correction={kind: tis, low: 0.1}"], "no lower bound"),
        (["objective.kl.kind=k1"], "'k2' or 'k3'"),
        (["objective.kl.kind=k2"], "kind has no effect"),
        (["eval={every: null, max_tasks: 3}"], "nothing is evaluated"),
        (["advantage={estimator: maxrl, std: sample}"], "not of maxrl"),
        (["advantage={estimator: grpo, std: mean}"], "estimator: maxrl"),
        (["advantage={estimator: gdpo}"], "reward.weights"),
        (["advantage={estimator: pass_at_k}"], "k is needed by"),
        (["advantage={estimator: grpo, k: 2}"], "k is needed by"),
        (["advantage={estimator: leap, bound: 0.2}"], "river only"),
        (["advantage={estimator: pass_at_k, k: 9}"], "above rollout.group_size 8"),
        (["advantage={estimator: reinforce, eps: 0.1}"], "eps has no effect"),
        (["overlong.penalty=2"], "limit is not given"),
        (["overlong={limit: 10, margin: 11}"], "above overlong.limit 10"),
        (["overlong.limit=10", "advantage.estimator=gdpo", "reward.weights={score: 1.0}"], "remove overlong"),
        (["advantage={estimator: grpo, gamma: 0.5}"], "gigpo only"),
        (["objective={loss: ppo, k_positive: 2}"], "ppo has no k_positive"),
        (["objective={loss: dis, clip_low: 1.5}"], "never below 0"),
        (["objective={loss: opsm, old_logprobs: recompute}"], "so opsm masks nothing"),
        (["objective.loss=gsp"], "'gspo'"),
        (["objective.loss=cispo", "objective.dual_clip=3"], "cispo has no dual_clip"),
        (["objective.loss=m2po", "objective.clip_low=0.1"], "m2po has no clip_low"),
        (["objective.loss=clip_cov", "objective.cov_share=2"], "less than or equal to 1"),
        (["objective={loss: sapo, clip_low: 0.2}"], "sapo has no clip_low"),
        (["objective={loss: gspo, aggregation: token_mean}"], "one ratio per episode"),
        (["objective={loss: ppo, clip_low: 1.5}"], "never below 0"),
        (["env.options.reward=score"], "the section reward"),
        (["batch.minibatches=99"], "larger than the number of episodes"),
        (["sampling.temperature=0"], "greater than 0"),
        (["optimizer.lr=.nan"], "optimizer.lr"),
        (["steps=3.5"], "steps"),
    ],
)
def test_options_that_cannot_be_honoured_are_refused(tmp_path: Path, overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(write(tmp_path, MINIMAL), overrides)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("steps: 3\n", "add a line .algorithm: NAME., one of grpo, ppo, sft, dpo, awr, distill, self_distill"),
        ("algorithm: gpro\n", r"r\.yaml:1: unknown algorithm 'gpro'; did you mean 'grpo'"),
        ("- 1\n", "mapping of sections"),
        ("a: [\n", "not YAML"),
        ("algorithm: grpo\nsteps: 1\nsteps: 2\n", r"r\.yaml:3: steps is given twice, first at .*r\.yaml:2"),
        ("algorithm: sft\nsteps: 1\nout: x\nbatch: {epochs: 2}\n", "one update per step"),
        ("algorithm: sft\nsteps: 1\nout: x\nenv: {eval_split: test}\n", "sft evaluates nothing"),
        ("algorithm: sft\nsteps: 1\nout: x\ndata: {path: a, concurrency: 2}\n", "nothing is played"),
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(write(tmp_path, text))


@pytest.mark.parametrize("override", ["steps", "=3", "steps.x=3", "steps=[", "out.deep=1"])
def test_malformed_overrides_are_refused(tmp_path: Path, override: str) -> None:
    with pytest.raises(ConfigError, match="override"):
        load(write(tmp_path, MINIMAL), [override])


def test_unknown_recipes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean 'grpo-tiny'"):
        load("grpo-tyny")
    with pytest.raises(ConfigError, match="cannot read"):
        load(tmp_path / "none.yaml")


def test_the_wrong_algorithm_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, MINIMAL)
    with pytest.raises(ConfigError, match="not sft"):
        load_sft(path)
    with pytest.raises(ConfigError, match="not grpo"):
        load_grpo(write(tmp_path, MINIMAL.replace("grpo", "sft")))


@pytest.mark.parametrize("name", list(bundled()))
def test_bundled_recipes_load_and_describe_their_loss(name: str) -> None:
    recipe = load(name)
    assert isinstance(recipe, RECIPES[recipe.algorithm])
    assert resolved(recipe).startswith(("step", "loss"))


def test_the_resolved_loss_states_its_numbers(tmp_path: Path) -> None:
    text = resolved(
        load(
            write(tmp_path, MINIMAL),
            [
                "advantage={estimator: dapo, eps: 1e-4}",
                "objective={clip_high: 0.28, dual_clip: 3.0, old_logprobs: recompute}",
                "objective.correction={kind: icepop, high: 5}",
                "objective.kl={coefficient: 0.01, kind: k2}",
                "batch.epochs=2",
            ],
        )
    )
    assert "sample standard deviation (divisor n-1) + 0.0001" in text
    assert "clip(ratio, 0.8, 1.28)" in text
    assert "at most -3 * A where A < 0" in text
    assert "0 outside [0.5, 5]" in text
    assert "+ 0.01 * (log pi - log ref)^2 / 2" in text
    assert "sum over trained tokens / number of trained tokens" in text


def test_reading_a_recipe_imports_no_torch() -> None:
    code = "import sys, forkgym.trainers.recipe_file, forkgym.trainers.describe; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
