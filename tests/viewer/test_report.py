"""The report: self-contained, escaped, well-formed, and drawn where the numbers say."""

from __future__ import annotations

import math
import re
from html.parser import HTMLParser

import pytest

from forkgym.agents.base import Episode, Segment, Step
from forkgym.viewer.charts import Chart, Series, render_chart, tick_texts, ticks
from forkgym.viewer.report import ReportData, Stat, Table, episode_view, render

VOID = {"meta", "br", "hr", "link", "img", "input"}


class Balance(HTMLParser):
    """Reads a page and keeps the tags, their attributes and what was never closed."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def read(page: str) -> Balance:
    parser = Balance()
    parser.feed(page)
    parser.close()
    assert parser.open == []
    return parser


def episode(**changes: object) -> Episode:
    values: dict[str, object] = {
        "id": "e1",
        "task": "swe/tiny/ledger-1",
        "group": "g",
        "harness": "bash",
        "seed": 0,
        "status": "finished",
        "prompt": [{"role": "user", "content": "Fix <the> bug & run"}],
        "steps": [Step(0, "```bash\nls\n```", {}, "a.py\n<script>alert(1)</script>\x1b[31m", 1.0, 0.002, 1.5)],
        "segments": [Segment([1, 2, 3], [False, True, True], [0.0, -0.5, -0.1], [-1, 0, 0], [0, 0, 0])],
        "verdict": {"resolved": True, "findings": [{"id": "t::a", "passed": True, "message": ""}]},
        "reward": 1.0,
    }
    return Episode(**{**values, **changes})  # pyright: ignore[reportArgumentType]


def full_report() -> ReportData:
    return ReportData(
        title="A & B",
        lead="lead",
        stats=[Stat("4 %", "before")],
        table=Table(["stage", "solved"], [["after <SFT>", "3/4"]]),
        charts=[Chart("Reward", "step", "reward", [Series("train", [(0, 0.0), (1, 1.0)])], (0, 1), percent=True)],
        episodes=[episode_view(episode(), "First"), episode_view(episode(), "Second")],
        facts={"command": "forkgym demo"},
    )


def test_page_needs_nothing_from_outside() -> None:
    page = read(render(full_report()))
    names = {tag for tag, _ in page.tags}
    assert names.isdisjoint({"script", "link", "img", "iframe", "object"})
    assert not [attrs for _, attrs in page.tags if "src" in attrs or "href" in attrs]
    assert "url(" not in render(full_report())
    assert "@import" not in render(full_report())


def test_text_of_an_agent_is_never_markup() -> None:
    page = render(full_report())
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "\x1b" not in page
    text = "".join(read(page).text)
    assert "Fix <the> bug & run" in text
    assert "after <SFT>" in text


def test_first_episode_is_open_and_the_rest_closed() -> None:
    details = [attrs for _, attrs in read(render(full_report())).tags if attrs.get("class") == "episode"]
    assert ["open" in attrs for attrs in details] == [True, False]


def test_summary_counts_sampled_tokens_and_time() -> None:
    view = episode_view(episode(), "x")
    assert view.summary == "swe/tiny/ledger-1 · 1 turn · 2 tokens sampled · 1.5 s · reward 1"
    assert view.findings == [(True, "t::a", "")]


@pytest.mark.parametrize(
    ("changes", "outcome", "mood"),
    [
        ({}, "solved", "good"),
        ({"verdict": {"resolved": False}, "reward": 0.0}, "not solved", "bad"),
        (
            {"status": "truncated", "reason": "turns", "verdict": {"resolved": False}, "reward": 0.0},
            "not solved: out of turns",
            "bad",
        ),
        (
            {"status": "failed", "reason": "sandbox", "verdict": None, "reward": None},
            "not scored: sandbox failed",
            "warn",
        ),
        ({"status": "cancelled", "verdict": None, "reward": None}, "cancelled", "warn"),
    ],
)
def test_outcome_tells_failure_from_a_wrong_answer(changes: dict[str, object], outcome: str, mood: str) -> None:
    view = episode_view(episode(**changes), "x")
    assert (view.outcome, view.mood) == (outcome, mood)


def test_long_output_is_cut_and_says_so() -> None:
    long = episode(steps=[Step(0, "x", {}, "a" * 50_000, 0.0, 0.0)])
    page = render(ReportData("t", "l", episodes=[episode_view(long, "x")]))
    assert "30000 characters left out" in page
    assert len(page) < 40_000


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (0, 30, [0, 5, 10, 15, 20, 25, 30]),
        (-1, 1, [-1, -0.5, 0, 0.5, 1]),
        (3, 3, [3]),
    ],
)
def test_ticks_are_round(low: float, high: float, expected: list[float]) -> None:
    assert ticks(low, high) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [
        ([5.385, 5.39, 5.395], False, ["5.385", "5.390", "5.395"]),
        ([0, 5, 10], False, ["0", "5", "10"]),
        ([0.0, 0.2, 0.4], True, ["0%", "20%", "40%"]),
        ([0.1, 0.2], False, ["0.1", "0.2"]),
        ([3], False, ["3.00"]),
    ],
)
def test_tick_texts_can_be_told_apart(values: list[float], percent: bool, expected: list[str]) -> None:
    assert tick_texts(values, percent) == expected


def test_steps_are_counted_in_whole_numbers() -> None:
    svg = render_chart(Chart("c", "step", "y", [Series("s", [(1, 0.0), (2, 1.0)])], (0, 1)))
    assert re.findall(r'text-anchor="middle">([^<]*)<', svg) == ["1", "2", "step"]


def test_points_are_drawn_at_their_values() -> None:
    svg = render_chart(Chart("c", "x", "y", [Series("s", [(0, 0.0), (10, 1.0)])], (0, 1)))
    # The plot spans 52..544 across and 238 (bottom) .. 14 (top) down.
    assert 'd="M52.0 238.0 L544.0 14.0"' in svg


def test_a_gap_breaks_the_line_and_is_no_point() -> None:
    svg = render_chart(Chart("c", "x", "y", [Series("s", [(0, 0.0), (1, math.nan), (2, 1.0), (4, 1.0)])], (0, 1)))
    path = re.search(r'<path class="s0" d="([^"]*)"/><circle', svg)
    assert path
    assert path[1].count("M") == 2
    assert svg.count("<circle") == 3
    assert "nan" not in svg


def test_empty_chart_says_so() -> None:
    assert "No data was recorded" in render_chart(Chart("c", "x", "y", [Series("s", [])]))


def test_constant_series_is_drawn() -> None:
    svg = render_chart(Chart("c", "x", "y", [Series("s", [(1, 5.0)])]))
    assert svg.count("<circle") == 1
    read(svg)
