from __future__ import annotations

from forkgym.agents.base import Episode, Status
from forkgym.agents.summary import summarize


def episode(status: Status, reason: str, reward: float | None = None, stage: str = "", **metrics: float) -> Episode:
    verdict = {"stage": stage, "resolved": stage == "resolved"} if stage else None
    return Episode("e", "t", "g", "bash", 0, status, reason, reward=reward, verdict=verdict, metrics=metrics)


def test_counts_add_up_and_failures_are_no_zeros() -> None:
    rows = [
        episode("finished", "submitted", 1.0, "resolved", turns=2.0),
        episode("finished", "submitted", 0.0, "empty", turns=4.0),
        episode("truncated", "turns", 1.0, "resolved"),
        episode("truncated", "context", 0.0, "unresolved"),
        episode("failed", "sandbox"),
        episode("failed", "grader"),
        episode("failed", "sandbox"),
        episode("cancelled", "cancelled"),
    ]
    summary = summarize(rows)
    assert summary.episodes == 8
    assert summary.scored == 4
    assert summary.status == {"finished": 2, "truncated": 2, "cancelled": 1, "failed": 3}
    assert summary.reason == {
        "finished(submitted)": 2,
        "truncated(turns)": 1,
        "truncated(context)": 1,
        "failed(sandbox)": 2,
        "failed(grader)": 1,
        "cancelled(cancelled)": 1,
    }
    assert sum(summary.status.values()) == sum(summary.reason.values()) == summary.episodes
    assert summary.stage == {"resolved": 2, "empty": 1, "unresolved": 1}
    assert (summary.reward, summary.reward_std, summary.resolved) == (0.5, 0.5, 0.5)
    assert summary.means == {"turns": 3.0}
    assert summary.failed_share == 3 / 8


def test_nothing_scored_has_no_mean() -> None:
    assert summarize([]).reward is None
    assert summarize([]).failed_share == 0.0
    failed = summarize([episode("failed", "engine")])
    assert (failed.reward, failed.reward_std, failed.resolved, failed.scored) == (None, None, None, 0)
