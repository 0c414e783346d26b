"""A run as one HTML file that needs nothing else: no script, no font, no picture from outside.

``render`` works on plain data; ``episode_view`` makes that data from a recorded ``Episode``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from typing import Any, Literal

from forkgym.agents.base import Episode
from forkgym.viewer.charts import Chart, render_chart

Mood = Literal["good", "bad", "warn"]
MAX_TEXT = 20_000


@dataclass(frozen=True)
class Stat:
    """One large number at the top, with what it means."""

    value: str
    label: str
    detail: str = ""


@dataclass(frozen=True)
class Table:
    """A table of short texts; the first column names the row."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


@dataclass(frozen=True)
class Turn:
    """One turn: what the agent wrote and what it got back."""

    said: str
    got: str
    aside: str = ""


@dataclass(frozen=True)
class EpisodeView:
    """One episode, turn by turn. ``findings`` are (passed, name, message)."""

    title: str
    outcome: str
    mood: Mood
    summary: str
    prompt: str
    turns: Sequence[Turn]
    findings: Sequence[tuple[bool, str, str]] = ()


@dataclass(frozen=True)
class ReportData:
    """Everything the page shows, top to bottom. ``facts`` says where and how the run was made."""

    title: str
    lead: str
    stats: Sequence[Stat] = ()
    table: Table | None = None
    charts: Sequence[Chart] = ()
    episodes: Sequence[EpisodeView] = ()
    facts: Mapping[str, str] = field(default_factory=dict[str, str])


def render(data: ReportData) -> str:
    """The page as text. All texts are escaped: what an agent printed can never become markup."""
    css = files("forkgym.viewer").joinpath("report.css").read_text()
    body = [f"<h1>{escape(data.title)}</h1><p>{escape(data.lead)}</p>", _stats(data.stats)]
    if data.table:
        body.append(f"<h2>Results</h2>{_table(data.table)}")
    if data.charts:
        body.append(f'<h2>Curves</h2><div class="charts">{"".join(map(render_chart, data.charts))}</div>')
    if data.episodes:
        body.append("<h2>Episodes, turn by turn</h2>")
        body += [_episode(view, opened=n == 0) for n, view in enumerate(data.episodes)]
    if data.facts:
        pairs = "".join(f"<dt>{escape(key)}</dt><dd>{escape(value)}</dd>" for key, value in data.facts.items())
        body.append(f'<h2>How this was made</h2><div class="plain"><dl>{pairs}</dl></div>')
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{escape(data.title)}</title><style>\n{css}</style></head>\n<body><main>{''.join(body)}</main></body></html>\n"
    )


def episode_view(episode: Episode, title: str) -> EpisodeView:
    """A recorded episode as the page shows it."""
    outcome, mood = _outcome(episode)
    verdict: Mapping[str, Any] = episode.verdict or {}
    sampled = sum(sum(segment.sampled) for segment in episode.segments)
    seconds = sum(step.seconds + step.policy_seconds for step in episode.steps)
    reward = "not scored" if episode.reward is None else f"reward {episode.reward:g}"
    turns = f"{len(episode.steps)} turn{'' if len(episode.steps) == 1 else 's'}"
    summary = f"{episode.task} · {turns} · {sampled} tokens sampled · {seconds:.1f} s · {reward}"
    if episode.detail:
        summary += f" · {episode.detail}"
    return EpisodeView(
        title=title,
        outcome=outcome,
        mood=mood,
        summary=summary,
        prompt="\n\n".join(f"[{message['role']}]\n{message['content']}" for message in episode.prompt),
        turns=[
            Turn(
                step.text, step.observation, f"sandbox {step.seconds * 1000:.0f} ms, model {step.policy_seconds:.1f} s"
            )
            for step in episode.steps
        ],
        findings=[(item["passed"], item["id"], item["message"]) for item in verdict.get("findings", ())],
    )


def _outcome(episode: Episode) -> tuple[str, Mood]:
    if episode.status == "failed":
        return f"not scored: {episode.reason} failed", "warn"
    if episode.status == "cancelled":
        return "cancelled", "warn"
    if (episode.verdict or {}).get("resolved"):
        return "solved", "good"
    return ("not solved: out of " + episode.reason, "bad") if episode.status == "truncated" else ("not solved", "bad")


def _stats(stats: Sequence[Stat]) -> str:
    if not stats:
        return ""
    items = "".join(
        f'<li><b>{escape(stat.value)}</b>{escape(stat.label)}<div class="quiet">{escape(stat.detail)}</div></li>'
        for stat in stats
    )
    return f'<ul class="stats">{items}</ul>'


def _table(table: Table) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in table.columns)
    rows = "".join(
        f'<tr><th scope="row">{escape(row[0])}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in row[1:])}</tr>'
        for row in table.rows
    )
    note = f'<p class="quiet">{escape(table.note)}</p>' if table.note else ""
    return f'<div class="plain"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>{note}'


def _episode(view: EpisodeView, opened: bool) -> str:
    parts = [f'<p class="quiet">{escape(view.summary)}</p>', f'<p class="who">Task</p>{_pre(view.prompt, "got")}']
    for n, turn in enumerate(view.turns, 1):
        parts.append(f'<p class="who"><span>Turn {n}: the agent</span><span>{escape(turn.aside)}</span></p>')
        parts.append(_pre(turn.said, "said"))
        parts.append(f'<p class="who">Turn {n}: the sandbox</p>{_pre(turn.got, "got")}')
    if view.findings:
        items = "".join(
            f'<li><span class="badge {"good" if passed else "bad"}">{"passed" if passed else "failed"}</span> '
            f"<code>{escape(name)}</code> {escape(_short(message, 300))}</li>"
            for passed, name, message in view.findings
        )
        parts.append(f'<p class="who">Hidden tests, run on a fork of the sandbox</p><ul class="findings">{items}</ul>')
    return (
        f'<details class="episode"{" open" if opened else ""}><summary><h3>{escape(view.title)}</h3>'
        f'<span class="badge {view.mood}">{escape(view.outcome)}</span></summary>'
        f'<div class="inside">{"".join(parts)}</div></details>'
    )


def _pre(text: str, kind: str) -> str:
    shown = _short(text.strip("\n"), MAX_TEXT)
    shown = shown if shown.strip() else "(nothing)"
    return f'<pre class="{kind}" tabindex="0">{escape(shown)}</pre>'


def _short(text: str, limit: int) -> str:
    """``text`` with control characters made visible, cut in the middle where it is longer than ``limit``."""
    clean = "".join(c if c in "\n\t" or c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    if len(clean) <= limit:
        return clean
    half = limit // 2
    return f"{clean[:half]}\n… {len(clean) - 2 * half} characters left out …\n{clean[-half:]}"
