"""Signs of collapse are told after they have lasted, or end the run with everything saved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from forkgym.agents.collect import Job
from forkgym.trainers import grpo
from forkgym.trainers.checkpoint import find
from forkgym.trainers.errors import CollapseError
from forkgym.trainers.events import Event, Warned
from forkgym.trainers.metrics import episode_metrics
from forkgym.trainers.monitor import signs
from forkgym.trainers.recipe import GrpoRecipe
from forkgym.trainers.sections import MonitorSection
from forkgym.trainers.token_game import TokenGame

HEALTHY = {"entropy": 1.0, "duplicate_rate": 0.1, "zero_signal_rate": 0.3, "tokens_per_episode": 100.0}


def rows(*changes: dict[str, float]) -> list[dict[str, float]]:
    return [HEALTHY, *({**HEALTHY, **change} for change in changes)]


@pytest.mark.parametrize(
    ("name", "bad", "message"),
    [
        ("entropy", 0.001, r"the entropy of the sampled tokens stayed below 0.01 for 3 steps: 0.001 0.001 0.001"),
        ("duplicate_rate", 0.95, r"the share of repeated episodes stayed above 0.9"),
        ("zero_signal_rate", 1.0, r"the share of groups without signal stayed above 0.9"),
        ("tokens_per_episode", 20.0, r"an episode, 100 in the first step, stayed below 25"),
    ],
)
def test_what_lasts_is_a_sign_and_a_bad_step_is_not(name: str, bad: float, message: str) -> None:
    section = MonitorSection()
    assert signs(section, rows({name: bad}, {name: bad})) == []
    assert signs(section, rows({name: bad}, {}, {name: bad}, {name: bad})) == []
    [found] = signs(section, rows({name: bad}, {name: bad}, {name: bad}))
    assert message in found


def test_what_is_not_watched_or_not_measured_is_no_sign() -> None:
    unwatched = MonitorSection(entropy=None, length=None, duplicates=None, silent=None)
    bad = {"entropy": 0.0, "duplicate_rate": 1.0, "zero_signal_rate": 1.0, "tokens_per_episode": 0.0}
    assert signs(unwatched, rows(bad, bad, bad)) == []
    assert signs(MonitorSection(), [{}, {}, {}]) == []


def test_repeated_episodes_are_counted_within_their_group(make_episode: Callable[..., Any]) -> None:
    same, other = [[([1], [2, 3])]], [[([1], [2, 4])]]
    episodes = [make_episode("a", same), make_episode("b", same), make_episode("c", other)]
    episodes.append(make_episode("d", same, group="h"))
    found = episode_metrics(episodes, episodes)
    assert found["duplicate_rate"] == 0.25
    assert found["tokens_per_episode"] == 2.0


def level(job: Job, ids: Sequence[int]) -> float:
    return 0.5


def test_a_run_warns_and_goes_on(recipe: Callable[..., GrpoRecipe]) -> None:
    seen: list[Event] = []
    setup = recipe(steps=4, monitor={"patience": 2})
    grpo.run(setup, player=lambda language: TokenGame(language.model, level), on_event=seen.append)
    warned = [event for event in seen if isinstance(event, Warned)]
    assert [event.step for event in warned] == [2, 3, 4]
    assert "groups without signal" in warned[0].message


def test_a_run_that_shall_stop_saves_the_step_and_says_what_to_do(recipe: Callable[..., GrpoRecipe]) -> None:
    setup = recipe(steps=9, monitor={"patience": 2, "stop": True}, checkpoint={"every": 9})
    with pytest.raises(CollapseError, match=r"after step 2, .*without signal.*monitor.stop=false"):
        grpo.run(setup, player=lambda language: TokenGame(language.model, level))
    assert find(Path(setup.out)).name == "step-000002"
    goes_on = recipe(steps=3, monitor={"patience": 2}, checkpoint={"every": 9})
    result = grpo.run(goes_on, resume=True, player=lambda language: TokenGame(language.model, level))
    assert result.step == 3
