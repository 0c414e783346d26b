"""What the demo found, as a table for the terminal and as data for the HTML report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt
from typing import Any

from forkgym.agents.base import Episode
from forkgym.cli.output import clock, percent
from forkgym.viewer.charts import Chart, Series
from forkgym.viewer.report import EpisodeView, ReportData, Stat, Table, episode_view

COLUMNS = ("stage", "held-out solved", "95 % range", "reward", "unscored", "time")
Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Stage:
    """Held-out episodes of one state of the model. ``elapsed`` is seconds since the demo began."""

    title: str
    episodes: Sequence[Episode]
    elapsed: float

    @property
    def scored(self) -> list[Episode]:
        return [episode for episode in self.episodes if episode.scored]

    @property
    def solved(self) -> int:
        return sum(map(is_solved, self.episodes))

    @property
    def share(self) -> float | None:
        """Solved over scored; ``None`` without any."""
        return self.solved / len(self.scored) if self.scored else None


@dataclass(frozen=True)
class DemoResult:
    """All that a demo leaves. ``sft`` and ``grpo`` are rows of the runs' metrics."""

    model: str
    stages: Sequence[Stage]
    sft: Rows
    grpo: Rows
    facts: Mapping[str, str] = field(default_factory=dict[str, str])


def is_solved(episode: Episode) -> bool:
    """True if the episode was scored and every hidden test passed."""
    return episode.scored and bool((episode.verdict or {}).get("resolved"))


def wilson(solved: int, n: int, z: float = 1.96) -> tuple[float, float]:
    """The Wilson score interval of a share (E. B. Wilson, 1927); (0, 1) for no observation."""
    if n == 0:
        return 0.0, 1.0
    share = solved / n
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return max(0.0, centre - half), min(1.0, centre + half)


def table_rows(stages: Sequence[Stage]) -> list[tuple[str, ...]]:
    """One row of texts for each stage, under ``COLUMNS``."""
    rows: list[tuple[str, ...]] = []
    for stage in stages:
        scored = stage.scored
        low, high = wilson(stage.solved, len(scored))
        reward = f"{sum(e.reward or 0.0 for e in scored) / len(scored):.2f}" if scored else "–"
        solved = f"{percent(stage.share)} ({stage.solved}/{len(scored)})"
        lost = str(len(stage.episodes) - len(scored))
        rows.append((stage.title, solved, f"{low:.0%} to {high:.0%}", reward, lost, clock(stage.elapsed)))
    return rows


def report_data(result: DemoResult) -> ReportData:
    """The demo as the HTML report shows it."""
    stages = result.stages
    seconds = stages[-1].elapsed
    return ReportData(
        title="A small language model learns to fix bugs",
        lead=(
            f"{result.model} works in real sandboxes, one bash command a turn. It is first shown solutions of other "
            "tasks (SFT), then learns from its own attempts (multi-turn GRPO). Hidden tests, run on a fork of each "
            f"sandbox, are the only reward. All of it took {clock(seconds)} (minutes and seconds) on this machine."
        ),
        stats=[Stat(percent(s.share), s.title, f"{s.solved} of {len(s.scored)} held-out tasks") for s in stages],
        table=Table(COLUMNS, table_rows(stages), "Held-out tasks are never trained on. One greedy episode on each."),
        charts=list(_charts(result)),
        episodes=pick_episodes(stages),
        facts=result.facts,
    )


def pick_episodes(stages: Sequence[Stage]) -> list[EpisodeView]:
    """The same task in every stage; if there is one, a task that the last stage solved and the one before did not."""
    by_task = [{episode.task: episode for episode in stage.episodes} for stage in stages]
    common = [task for task in by_task[-1] if all(task in group for group in by_task)]
    if not common:
        return []

    def progress(task: str) -> tuple[bool, ...]:
        before = [group[task] for group in reversed(by_task[:-1])]
        return (is_solved(by_task[-1][task]), *(episode.scored and not is_solved(episode) for episode in before))

    task = max(common, key=progress)
    return [
        episode_view(group[task], f"{stage.title[:1].upper()}{stage.title[1:]}: {task}")
        for stage, group in zip(reversed(stages), reversed(by_task), strict=True)
    ]


def _charts(result: DemoResult) -> list[Chart]:
    trained = [row for row in result.grpo if row["kind"] == "train"]
    held_out = [row for row in result.grpo if row["kind"] == "eval"]
    demonstrations = [row for row in result.sft if row["kind"] == "train"]
    times = sorted({key for row in trained for key in row if key.startswith("seconds/")})
    solved = [("training, sampled", trained), ("held-out, greedy", held_out)]
    return [
        Chart(
            "Solved while GRPO trains",
            "step",
            "share of episodes",
            [Series(label, _points(rows, "pass_rate")) for label, rows in solved],
            (0.0, 1.0),
            percent=True,
        ),
        Chart("SFT on demonstrations", "step", "nats per token", [Series("loss", _points(demonstrations, "loss"))]),
        Chart("Turns per episode", "step", "turns", [Series("training, sampled", _points(trained, "turns"))]),
        Chart(
            "Where a GRPO step's time goes",
            "step",
            "seconds",
            [Series(key.removeprefix("seconds/"), _points(trained, key)) for key in times],
        ),
    ]


def _points(rows: Rows, key: str) -> list[tuple[float, float]]:
    return [(float(row["step"]), float(row[key])) for row in rows if key in row]
