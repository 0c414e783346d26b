"""The demo's table and report, from small made-up results."""

from __future__ import annotations

import pytest

from forkgym.agents.base import Episode, Step
from forkgym.cli.demo_report import DemoResult, Stage, pick_episodes, report_data, table_rows, wilson
from forkgym.viewer.report import render


def episode(task: str, resolved: bool | None, text: str = "") -> Episode:
    """An episode that solved its task, did not, or (``None``) could not be scored."""
    made = Episode(f"{task}#0", task, "g", "bash", 0, status="finished", steps=[Step(0, text, {}, "", 0.0, 0.0)])
    if resolved is None:
        made.status, made.reason = "failed", "sandbox"
    else:
        made.reward, made.verdict = float(resolved), {"resolved": resolved, "findings": []}
    return made


def stages() -> list[Stage]:
    outcomes = {
        "before training": [False, False, False, False],
        "after SFT": [True, False, None, False],
        "after GRPO": [True, False, True, True],
    }
    return [
        Stage(title, [episode(f"t{n}", solved, title) for n, solved in enumerate(solves)], 60.0 * (index + 1))
        for index, (title, solves) in enumerate(outcomes.items())
    ]


@pytest.mark.parametrize(
    ("solved", "n", "low", "high"),
    # Published values of the interval at 95 %: Newcombe (1998), Statistics in Medicine 17, table I, method 3.
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_interval_has_its_published_values(solved: int, n: int, low: float, high: float) -> None:
    assert wilson(solved, n) == pytest.approx((low, high), abs=5e-5)


def test_wilson_interval_without_observations_says_nothing() -> None:
    assert wilson(0, 0) == (0.0, 1.0)


def test_table_leaves_failed_episodes_out_of_every_share() -> None:
    before, after_sft, after_grpo = table_rows(stages())
    assert before == ("before training", "0% (0/4)", "0% to 49%", "0.00", "0", "1:00")
    assert after_sft[:2] == ("after SFT", "33% (1/3)")
    assert after_sft[3:] == ("0.33", "1", "2:00")
    assert after_grpo[1] == "75% (3/4)"


def test_episodes_shown_are_of_one_task_that_training_turned() -> None:
    views = pick_episodes(stages())
    # Before and after SFT t3 was scored and not solved, and GRPO solved it; t2 was not scored after SFT.
    assert [view.title for view in views] == ["After GRPO: t3", "After SFT: t3", "Before training: t3"]
    assert views[0].outcome == "solved"
    assert views[2].outcome == "not solved"


def test_report_shows_stages_curves_and_episodes() -> None:
    grpo = [
        {"kind": "eval", "step": 0, "pass_rate": 0.25},
        {"kind": "train", "step": 1, "pass_rate": 0.5, "turns": 3.0, "seconds/rollout": 4.0, "seconds/train": 2.0},
        {"kind": "train", "step": 2, "pass_rate": 0.75, "turns": 2.5, "seconds/rollout": 3.0, "seconds/train": 2.0},
        {"kind": "eval", "step": 2, "pass_rate": 0.75},
    ]
    sft = [{"kind": "train", "step": 1, "loss": 1.5}, {"kind": "train", "step": 2, "loss": 0.5}]
    data = report_data(DemoResult("SmolLM2", stages(), sft, grpo, {"command": "forkgym demo"}))
    assert [stat.value for stat in data.stats] == ["0%", "33%", "75%"]
    solved = data.charts[0]
    assert [list(line.points) for line in solved.series] == [[(1.0, 0.5), (2.0, 0.75)], [(0.0, 0.25), (2.0, 0.75)]]
    assert [line.label for line in data.charts[3].series] == ["rollout", "train"]
    assert "All of it took 3:00 " in data.lead
    page = render(data)
    for text in ("after GRPO", "forkgym demo", "75% (3/4)"):
        assert text in page
