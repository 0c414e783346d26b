"""The GRPO loop on the token game: it learns, counts, refuses, stops and goes on."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from forkgym.agents.collect import Job
from forkgym.agents.records import read_episodes
from forkgym.errors import ConfigError
from forkgym.trainers import grpo
from forkgym.trainers.checkpoint import find, latest
from forkgym.trainers.errors import InterruptedTraining
from forkgym.trainers.events import EpisodeEnded, EvalEnded, Event, PhaseStarted, StepEnded
from forkgym.trainers.loop import make_player
from forkgym.trainers.metrics import read_metrics
from forkgym.trainers.models import load_model, trained_weights
from forkgym.trainers.recipe import GrpoRecipe
from forkgym.trainers.run_folder import Result
from forkgym.trainers.token_game import Rule, TokenGame, low_ids

MakeRecipe = Callable[..., GrpoRecipe]


def train(recipe: GrpoRecipe, rule: Rule = low_ids, **options: Any) -> tuple[Result, TokenGame]:
    games: list[TokenGame] = []

    def player(language: Any) -> TokenGame:
        games.append(TokenGame(language.model, rule))
        return games[-1]

    try:
        return grpo.run(recipe, player=player, **options), games[-1]
    finally:
        assert all(game.closed for game in games)


def rows(recipe: GrpoRecipe, kind: str = "train") -> list[dict[str, Any]]:
    return [row for row in read_metrics(Path(recipe.out)) if row["kind"] == kind]


def weights(recipe: GrpoRecipe) -> bytes:
    return (find(Path(recipe.out)) / "weights.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("advantage", "objective"),
    [
        ({"estimator": "grpo"}, {}),
        ({"estimator": "dr_grpo"}, {"aggregation": "seq_mean_token_sum_norm", "l_max": 3}),
        ({"estimator": "rloo"}, {"aggregation": "seq_mean_token_mean"}),
        ({"estimator": "dapo"}, {"clip_high": 0.28}),
        ({"estimator": "maxrl"}, {"loss": "cispo"}),
        ({"estimator": "opo"}, {"loss": "sapo"}),
        ({"estimator": "reinforce"}, {"loss": "topr"}),
        ({"estimator": "reinforce_pp"}, {"loss": "reinforce"}),
        ({"estimator": "reinforce_pp_baseline"}, {"loss": "dppo"}),
        ({"estimator": "gdpo"}, {"loss": "dro"}),
        ({"estimator": "pass_at_k", "k": 2}, {}),
        ({"estimator": "gpg"}, {"loss": "dis"}),
        ({"estimator": "gigpo"}, {"loss": "opsm"}),
        ({"estimator": "leap"}, {}),
        ({"estimator": "river", "bound": 0.3}, {}),
        ({"estimator": "grpo"}, {"loss": "vespo"}),
        ({"estimator": "grpo"}, {"loss": "m2po"}),
        ({"estimator": "grpo"}, {"loss": "clip_cov", "old_logprobs": "recompute"}),
        ({"estimator": "grpo"}, {"loss": "kl_cov", "cov_kl": 0.1}),
        ({"estimator": "grpo"}, {"loss": "gspo"}),
        ({"estimator": "grpo"}, {"loss": "gmpo", "old_logprobs": "recompute"}),
    ],
)
def test_every_estimator_learns(recipe: MakeRecipe, advantage: dict[str, Any], objective: dict[str, Any]) -> None:
    setup = recipe(
        advantage=advantage,
        objective=objective,
        reward={"weights": {"score": 1.0}},
        rollout={"groups": 3, "group_size": 8},
        eval={"every": 15, "episodes_per_task": 20, "temperature": 1.0},
        steps=15,
    )
    result, _ = train(setup)
    before, after = rows(setup, "eval")
    assert result.reason == "done"
    assert before["reward"] < 0.4
    assert after["reward"] > 0.7
    assert result.metrics["reward"] == after["reward"]


def test_the_first_ratio_is_one_and_the_trainer_agrees_with_the_sampler(recipe: MakeRecipe) -> None:
    setup = recipe(steps=1)
    train(setup)
    [row] = rows(setup)
    assert row["ratio_mean"] == pytest.approx(1.0, abs=1e-6)
    assert row["mismatch/max_abs"] < 1e-5
    assert row["mismatch/correlation"] == pytest.approx(1.0, abs=1e-5)
    assert row["mismatch/ess"] == pytest.approx(1.0, abs=1e-5)
    assert row["clip_fraction"] == 0.0


def test_the_penalty_on_long_episodes_is_trained_and_told(recipe: MakeRecipe, tmp_path: Path) -> None:
    plain = recipe(out=str(tmp_path / "plain"), steps=1)
    shaped = recipe(out=str(tmp_path / "shaped"), steps=1, overlong={"limit": 1, "penalty": 0.25})
    train(plain)
    train(shaped)
    [row] = rows(shaped)
    assert row["overlong_penalty"] == 0.25
    assert row["reward"] == rows(plain)[0]["reward"]  # that of the environment
    assert weights(shaped) == weights(plain)  # all lost the same


def test_more_updates_per_step_move_the_ratio(recipe: MakeRecipe) -> None:
    setup = recipe(batch={"epochs": 2, "minibatches": 2}, steps=1)
    train(setup)
    [row] = rows(setup)
    assert row["updates"] == 4
    assert row["ratio_max"] > 1.01


@pytest.mark.parametrize("kind", ["tis", "icepop"])
def test_a_correction_by_equal_probabilities_changes_nothing(recipe: MakeRecipe, tmp_path: Path, kind: str) -> None:
    plain = recipe(out=str(tmp_path / "plain"), objective={"old_logprobs": "recompute"})
    corrected = recipe(
        out=str(tmp_path / "corrected"), objective={"old_logprobs": "recompute", "correction": {"kind": kind}}
    )
    train(plain)
    train(corrected)
    for row, other in zip(rows(plain), rows(corrected), strict=True):
        assert row["grad_norm"] == pytest.approx(other["grad_norm"], rel=1e-4)


def test_the_kl_reference_is_the_policy_at_the_start(recipe: MakeRecipe) -> None:
    """Without reward signal the only gradient is that of the KL term, which is zero until the weights move."""
    setup = recipe(objective={"kl": {"coefficient": 1.0}}, steps=2)

    def rule(job: Job, ids: Sequence[int]) -> float:
        return 0.5 if not rows(setup) else low_ids(job, ids)

    train(setup, rule)
    first, second = rows(setup)
    assert first["updates"] == 1
    assert first["grad_norm"] < 1e-6
    assert second["grad_norm"] > 0.1


def test_dapo_replaces_groups_without_signal(recipe: MakeRecipe) -> None:
    def rule(job: Job, ids: Sequence[int]) -> float:
        return 1.0 if job.task == "a" else float(job.id.endswith((".0", ".1")))

    setup = recipe(advantage={"estimator": "dapo", "rounds": 9}, rollout={"groups": 2, "group_size": 4}, steps=3)
    _, game = train(setup, rule)
    for row in rows(setup):
        assert row["groups"] - row["zero_signal_groups"] == 2
        assert row["trained_episodes"] == 8
    state = json.loads((find(Path(setup.out)) / "state.json").read_text())
    assert len(game.played) == state["cursor"] * 4
    assert not any(unit.startswith("a#") for unit in state["ledger"])
    assert len(set(state["ledger"])) == len(state["ledger"]) == 24


def test_failed_members_are_left_out_and_reported(recipe: MakeRecipe) -> None:
    def rule(job: Job, ids: Sequence[int]) -> float | None:
        return None if job.id.endswith(".1") else float(job.id.endswith(".0"))

    setup = recipe(steps=1)
    train(setup, rule)
    [row] = rows(setup)
    assert row["reward"] == pytest.approx(1 / 3)
    assert row["trained_episodes"] == 6
    assert row["left_out/failed(sandbox)"] == 2
    assert row["failure_rate"] == row["failure_rate/sandbox"] == 0.25


def test_every_attempt_is_on_disk(recipe: MakeRecipe) -> None:
    setup = recipe(eval={"every": 2, "episodes_per_task": 1}, steps=2)
    train(setup)
    folder = Path(setup.out) / "episodes"
    assert sorted(path.name for path in folder.iterdir()) == [
        "eval-000000.jsonl",
        "eval-000002.jsonl",
        "train-000001.jsonl",
        "train-000002.jsonl",
    ]
    assert len(read_episodes(folder / "train-000001.jsonl").episodes) == 8


def test_held_out_episodes_have_the_same_seeds_each_time(recipe: MakeRecipe) -> None:
    setup = recipe(eval={"every": 1, "episodes_per_task": 2}, steps=2, optimizer={"lr": 1e-30})
    _, game = train(setup)
    held_out = [job for job in game.played if job.group.endswith("#eval")]
    assert len(held_out) == 12
    assert len({job.seed for job in held_out}) == 4
    assert len({row["reward"] for row in rows(setup, "eval")}) == 1


def test_ctrl_c_gives_up_the_step_and_a_resumed_run_ends_as_if_nothing_had_happened(
    recipe: MakeRecipe, tmp_path: Path
) -> None:
    straight = recipe(out=str(tmp_path / "straight"), steps=4, checkpoint={"every": 3})
    train(straight)
    setup = recipe(steps=4, checkpoint={"every": 3})

    def interrupt(event: Event) -> None:
        if isinstance(event, EpisodeEnded) and (event.step, event.done) == (3, 5):
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(InterruptedTraining, match=r"stopped after step 2 of 4.*--resume"):
        train(setup, on_event=interrupt)
    assert signal.getsignal(signal.SIGINT) is before
    found = latest(Path(setup.out) / "checkpoints")
    assert found is not None
    assert found.name == "step-000002"
    result, game = train(setup, resume=True)
    assert result.step == 4
    assert len(game.played) == 16
    assert weights(setup) == weights(straight)
    states = [json.loads((find(Path(run.out)) / "state.json").read_text()) for run in (straight, setup)]
    assert [state["version"] for state in states] == [4, 4]


def test_a_resumed_sampler_goes_on_counting_its_weights(recipe: MakeRecipe) -> None:
    setup = recipe()
    language = load_model(setup.model)
    play = make_player(setup, language, version=4)
    try:
        assert play._policy is not None
        assert play._policy.version == 4
        play.update(trained_weights(language.model))
        assert play._policy.version == 5
    finally:
        play.close()


def test_the_time_budget_ends_a_run_between_steps(recipe: MakeRecipe) -> None:
    setup = recipe(steps=50, time_budget_s=1e-6, eval={"every": 50, "episodes_per_task": 1})
    result, _ = train(setup)
    assert (result.step, result.reason) == (0, "time")
    assert find(Path(setup.out)).name == "step-000000"
    assert result.metrics["scored"] == 2
    more, _ = train(recipe(steps=2), resume=True)
    assert (more.step, more.reason) == (2, "done")


def test_a_run_is_not_overwritten(recipe: MakeRecipe) -> None:
    train(recipe(steps=1))
    with pytest.raises(ConfigError, match="already holds a run: resume it"):
        train(recipe(steps=1))


def test_a_run_that_never_finished_a_step_is_begun_anew(recipe: MakeRecipe) -> None:
    def broken(job: Job, ids: Sequence[int]) -> float:
        raise OSError("first try")

    with pytest.raises(OSError, match="first try"):
        train(recipe(steps=1), broken)
    result, _ = train(recipe(steps=1, seed=7))
    assert result.step == 1
    assert json.loads((result.checkpoint / "state.json").read_text())["recipe"]["seed"] == 7


def test_wrong_environment_options_are_refused_before_anything_is_played(recipe: MakeRecipe) -> None:
    setup = recipe(env={"tasks": "swe/tiny/clamp/*", "options": {"max_turn": 3}})
    with pytest.raises(ConfigError, match="unknown environment option 'max_turn'; did you mean 'max_turns'"):
        grpo.run(setup)
    assert not (Path(setup.out) / "checkpoints").exists()


def test_a_resumed_run_must_have_the_same_recipe(recipe: MakeRecipe) -> None:
    train(recipe(steps=1))
    with pytest.raises(ConfigError, match="differ: optimizer, seed"):
        train(recipe(steps=2, seed=5, optimizer={"lr": 1.0}), resume=True)
    result, _ = train(recipe(steps=2), resume=True)
    assert result.step == 2


@pytest.mark.parametrize(("now", "refused"), [({}, False), ({"tolerance": 0.5}, True)])
def test_a_run_that_is_older_than_an_option_goes_on_with_its_default(
    recipe: MakeRecipe, now: dict[str, Any], refused: bool
) -> None:
    result, _ = train(recipe(steps=1))
    path = result.checkpoint / "state.json"
    state = json.loads(path.read_text())
    del state["recipe"]["advantage"]["tolerance"]
    del state["recipe"]["reward"]
    path.write_text(json.dumps(state))
    if refused:
        with pytest.raises(ConfigError, match="these differ: advantage"):
            train(recipe(steps=2, advantage=now), resume=True)
    else:
        assert train(recipe(steps=2), resume=True)[0].step == 2


def test_several_ranks_are_refused(recipe: MakeRecipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    setup = recipe(steps=1)
    with pytest.raises(ConfigError, match="WORLD_SIZE is 2: start it without torchrun"):
        grpo.run(setup)
    assert not Path(setup.out).exists()


def test_steps_cannot_change_under_a_schedule(recipe: MakeRecipe) -> None:
    train(recipe(steps=1, optimizer={"schedule": "cosine"}))
    with pytest.raises(ConfigError, match="schedule depends on it"):
        train(recipe(steps=2, optimizer={"schedule": "cosine"}), resume=True)


def test_a_changed_task_set_is_refused_on_resume(recipe: MakeRecipe) -> None:
    train(recipe(steps=1))
    with pytest.raises(ConfigError, match="the task set has changed"):
        grpo.run(recipe(steps=2), resume=True, player=lambda language: TokenGame(language.model, tasks=["x", "y"]))


def test_two_processes_cannot_share_a_folder(recipe: MakeRecipe) -> None:
    setup = recipe(steps=1)

    def again(event: Event) -> None:
        if isinstance(event, StepEnded):
            with pytest.raises(ConfigError, match="another process is training"):
                train(setup, resume=True)

    train(setup, on_event=again)


def test_an_error_of_the_player_saves_the_last_finished_step(recipe: MakeRecipe) -> None:
    setup = recipe(steps=3, checkpoint={"every": 50})

    def rule(job: Job, ids: Sequence[int]) -> float:
        if rows(setup):
            raise OSError("no space left on device")
        return low_ids(job, ids)

    with pytest.raises(OSError, match="no space"):
        train(setup, rule)
    assert find(Path(setup.out)).name == "step-000001"


def test_training_starts_from_another_run(recipe: MakeRecipe, tmp_path: Path) -> None:
    first = recipe(out=str(tmp_path / "first"), steps=2)
    train(first)
    second = recipe(
        out=str(tmp_path / "second"),
        model={"name": "tiny-random", "dtype": "float32", "start_from": first.out},
        optimizer={"lr": 1e-30},
        steps=1,
    )
    train(second)
    assert weights(second) == weights(first)


def test_events_tell_the_whole_story(recipe: MakeRecipe) -> None:
    events: list[Event] = []
    setup = recipe(steps=1, eval={"every": 1})
    train(setup, on_event=events.append)
    names = [e.phase if isinstance(e, PhaseStarted) else type(e).__name__ for e in events]
    assert [name for name in names if name != "EpisodeEnded"] == [
        "RunStarted", "eval", "EvalEnded", "checkpoint", "CheckpointSaved",
        "rollout", "train", "StepEnded",
        "eval", "EvalEnded", "checkpoint", "CheckpointSaved", "RunEnded",
    ]  # fmt: skip
    assert names.count("EpisodeEnded") == 2 + 8 + 2
    assert [e.step for e in events if isinstance(e, EvalEnded)] == [0, 1]
