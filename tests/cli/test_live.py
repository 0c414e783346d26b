"""The view of a long run: what it says in a pipe, and that its clock and curves are right."""

from __future__ import annotations

import io
import math

import pytest
from rich.console import Console

from forkgym.cli.live import LiveView, sparkline


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.time = 100.0

    def __call__(self) -> float:
        return self.time


def pipe() -> tuple[Console, io.StringIO]:
    text = io.StringIO()
    return Console(file=text, force_terminal=False, width=100), text


def test_a_pipe_gets_plain_lines_now_and_then() -> None:
    console, text = pipe()
    clock = Clock()
    with LiveView("t", [("a", "First"), ("b", "Second")], console, clock) as view:
        view.start("a", total=10)
        for done in range(1, 11):
            clock.time += 5
            view.update("a", done, f"{done} ok")
        view.finish("a", "10 of 10")
    assert text.getvalue().splitlines() == [
        "[0:00] First …",
        "[0:15] First: 3 of 10 3 ok",
        "[0:30] First: 6 of 10 6 ok",
        "[0:45] First: 9 of 10 9 ok",
        "[0:50] First: done in 0:50. 10 of 10",
    ]


def test_the_view_names_every_phase_and_guesses_the_time_left() -> None:
    console, text = pipe()
    clock = Clock()
    view = LiveView("Title", [("a", "First"), ("b", "Second")], console, clock)
    view.start("a", total=4)
    clock.time += 60
    view.update("a", 1, "half-way", point=0.5)
    view.tell("an episode ended")
    console.print(view.render())
    shown = text.getvalue()
    # A quarter took one minute, so three are left.
    for wanted in ("Title · 1:00", "First", "Second", "3:00 left", "half-way", "an episode ended"):
        assert wanted in shown


def test_an_interrupted_phase_is_shown_as_failed() -> None:
    console, _ = pipe()
    view = LiveView("t", [("a", "First"), ("b", "Second")], console)

    def interrupted() -> None:
        with view:
            view.start("a")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [phase.state for phase in view.phases.values()] == ["failed", "waiting"]


def test_points_that_are_no_numbers_leave_the_curve_alone() -> None:
    console, _ = pipe()
    view = LiveView("t", [("a", "First")], console)
    view.start("a")
    for point in (0.25, math.nan, math.inf, None, 0.5):
        view.update("a", 1, point=point)
    assert view.phases["a"].curve == [0.25, 0.5]


def test_sparkline_shows_the_last_values_by_height() -> None:
    assert sparkline([0.0, 0.5, 1.0], 10) == "▁▅█"
    assert sparkline([0.0] * 9 + [1.0, 2.0, -1.0], 3) == "██▁"
    assert sparkline([], 5) == ""
