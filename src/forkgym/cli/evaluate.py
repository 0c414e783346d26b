"""``forkgym eval``: many episodes, a table, and records from which a stopped evaluation goes on."""

from __future__ import annotations

import hashlib
import json
import platform
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from forkgym import __version__
from forkgym.agents.base import Episode, SamplingParams
from forkgym.agents.collect import Job, collect
from forkgym.agents.records import EpisodeWriter, read_episodes
from forkgym.agents.summary import Summary, summarize
from forkgym.cli.output import clock, err, out, percent, print_json, print_table
from forkgym.cli.players import Player, player
from forkgym.envs.core import CodingEnv
from forkgym.errors import ConfigError
from forkgym.tasks.loader import load
from forkgym.tasks.taskset import TaskSet
from forkgym.viewer import report as page

RECORDS, SETTINGS = "episodes.jsonl", "eval.json"


@dataclass(frozen=True)
class Measured:
    """The episodes of one evaluation in the order of its jobs, and the folder of its records."""

    episodes: list[Episode]
    folder: Path
    settings: Mapping[str, Any]


def evaluate(tasks: str, *, agent: str, out: Path | None, report: Path | None, as_json: bool, **options: Any) -> int:
    """Play ``n`` episodes on each task and say how many were solved. Exit code 1 if some could not be scored.

    ``options`` are those of ``measure``.
    """
    done = measure(tasks, agent=agent, out=out, **options)
    summary = summarize(done.episodes)
    if report is not None:
        report.parent.mkdir(parents=True, exist_ok=True)
        report.write_text(page.render(_report(done.episodes, summary, done.settings)), encoding="utf-8")
    if as_json:
        print_json(plain(done))
    else:
        _print(done.episodes, summary, done.folder, report)
    return 0 if summary.scored == summary.episodes else 1


def measure(
    tasks: str,
    *,
    split: str | None,
    agent: str,
    agent_options: Sequence[str] = (),
    model: str | None,
    n: int,
    sandbox: str,
    seed: int,
    turns: int | None,
    max_tokens: int,
    temperature: float,
    concurrency: int,
    out: Path | None,
    max_seconds: float | None,
    max_sampled_tokens: int | None,
    tree_digests: bool,
) -> Measured:
    """Play what is not in the folder yet."""
    chosen = load(tasks, split=split)
    settings: dict[str, Any] = {
        "tasks": tasks, "split": split, "agent": agent, "model": model, "sandbox": sandbox, "seed": seed,
        "turns": turns, "max_tokens": max_tokens, "temperature": temperature, "version": __version__,
    }  # fmt: skip
    if tree_digests:
        settings["tree_digests"] = True
    if agent_options:
        settings["agent_options"] = sorted(agent_options)
    out = out or _folder_of(settings)
    finished = _resume(out, settings)
    jobs = [Job(task, seed + k, task, f"{task}#{k}") for task in chosen.ids for k in range(n)]
    todo = [job for job in jobs if job.id not in finished]
    kept = [finished[job.id] for job in jobs if job.id in finished]
    if kept:
        note = f"{len(kept)} of {len(jobs)} episodes are kept from an earlier run in {out}; another --out plays anew."
        err.print(note, markup=False, soft_wrap=True)
    if todo:
        with player(agent, model, concurrency, agent_options) as who:
            limits = {"concurrency": concurrency, "max_seconds": max_seconds, "max_sampled_tokens": max_sampled_tokens}
            finished |= _play(todo, kept, chosen, who, settings, limits, out)
    return Measured([finished[job.id] for job in jobs], out, settings)


def _folder_of(settings: Mapping[str, Any]) -> Path:
    """A folder that only evaluations with these settings take, so that two different ones never meet."""
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
    return Path("runs") / f"eval-{re.sub(r'[^A-Za-z0-9_-]+', '-', str(settings['agent']))}-{digest[:8]}"


def _resume(folder: Path, settings: Mapping[str, Any]) -> dict[str, Episode]:
    """Episodes that are already scored, by the id of their job. Another evaluation's folder is refused."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / SETTINGS
    if path.is_file():
        before: Mapping[str, Any] = json.loads(path.read_text())
        changed = [f"{key} was {before.get(key)!r}" for key, value in settings.items() if before.get(key) != value]
        if changed:
            raise ConfigError(
                f"{folder} holds another evaluation ({', '.join(changed)}); choose another --out, or remove it"
            )
    elif (folder / RECORDS).is_file():
        raise ConfigError(f"{folder} holds episodes of another kind of run; choose another --out")
    path.write_text(json.dumps(settings, indent=1))
    if not (folder / RECORDS).is_file():
        return {}
    return last_attempts(e for e in read_episodes(folder / RECORDS).episodes if e.scored)


def last_attempts(episodes: Iterable[Episode]) -> dict[str, Episode]:
    """The last of the attempts at each job, by the job's id, in the order of the first attempts."""
    return {re.sub(r"\.retry\d+$", "", episode.id): episode for episode in episodes}


def _play(
    jobs: Sequence[Job],
    kept: Sequence[Episode],
    tasks: TaskSet,
    who: Player,
    settings: Mapping[str, Any],
    limits: Mapping[str, Any],
    folder: Path,
) -> dict[str, Episode]:
    sampling = SamplingParams(max_tokens=settings["max_tokens"], temperature=settings["temperature"])

    trees = settings.get("tree_digests", False)

    def make_env() -> CodingEnv:
        return CodingEnv(
            tasks, sandbox=settings["sandbox"], max_turns=settings["turns"], tree_digests=trees, mounts=who.mounts
        )

    columns = [
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    ]
    solved = sum(map(_solved, kept))
    with EpisodeWriter(folder / RECORDS) as writer, Progress(*columns, console=err) as progress:
        bar = progress.add_task("playing", total=len(jobs) + len(kept), completed=len(kept))

        def keep(episode: Episode) -> None:
            nonlocal solved
            writer.write(episode)
            solved += _solved(episode)
            if episode.scored:
                progress.update(bar, advance=1, description=f"playing, {solved} solved")

        played = collect(jobs, make_env, who.agent, who.policy, sampling=sampling, on_episode=keep, **limits)
    if played.stopped:
        err.print(f"The {played.stopped} were used up; the same command goes on.", markup=False)
    return last_attempts(played.episodes)


def _solved(episode: Episode) -> bool:
    return episode.scored and bool((episode.verdict or {}).get("resolved"))


def by_task(episodes: Sequence[Episode]) -> list[dict[str, Any]]:
    """Per task: episodes, how many were scored and solved, and the mean reward of the scored ones."""
    groups: dict[str, list[Episode]] = defaultdict(list)
    for episode in episodes:
        groups[episode.task].append(episode)
    return [
        {
            "task": task,
            "episodes": len(group),
            "scored": sum(e.scored for e in group),
            "solved": sum(map(_solved, group)),
            "reward": summarize(group).reward,
        }
        for task, group in groups.items()
    ]


def plain(done: Measured) -> dict[str, Any]:
    """An evaluation for machines."""
    tasks = by_task(done.episodes)
    summary = _plain(summarize(done.episodes))
    return {"settings": done.settings, "summary": summary, "tasks": tasks, "records": str(done.folder)}


def _plain(summary: Summary) -> dict[str, Any]:
    return {
        "episodes": summary.episodes,
        "scored": summary.scored,
        "resolved": summary.resolved,
        "reward": summary.reward,
        "reward_std": summary.reward_std,
        "status": dict(summary.status),
        "reason": dict(summary.reason),
        "stage": dict(summary.stage),
        "means": dict(summary.means),
    }


def _print(episodes: Sequence[Episode], summary: Summary, folder: Path, report: Path | None) -> None:
    table = Table(box=None, header_style="dim", pad_edge=False)
    table.add_column("task", no_wrap=True)
    for name in ("solved", "reward", "not scored"):
        table.add_column(name, justify="right")
    for row in by_task(episodes):
        colour = "green" if row["solved"] == row["episodes"] else "red" if not row["solved"] else "yellow"
        reward = "–" if row["reward"] is None else f"{row['reward']:.2f}"
        lost = row["episodes"] - row["scored"]
        share = f"[{colour}]{row['solved']}/{row['episodes']}[/]"
        table.add_row(escape(row["task"]), share, reward, str(lost) if lost else "")
    print_table(table)
    solved = sum(map(_solved, episodes))
    out.print(f"\n[bold]{percent(summary.resolved)} solved[/] ({solved} of {summary.scored} scored episodes)")
    if summary.scored < summary.episodes:
        lost = ", ".join(
            f"{reason} × {count}" for reason, count in summary.reason.items() if not reason.startswith("fin")
        )
        err.print(
            f"[yellow]{summary.episodes - summary.scored} episodes were not scored[/]: {lost}. Run again to retry them."
        )
    where = f"records: {folder / RECORDS}" + (f"\nreport:  {report}" if report else "")
    out.print(where, style="dim", markup=False, soft_wrap=True)


def _report(episodes: Sequence[Episode], summary: Summary, settings: Mapping[str, Any]) -> page.ReportData:
    rows = [
        [row["task"], f"{row['solved']}/{row['episodes']}", "–" if row["reward"] is None else f"{row['reward']:.2f}"]
        for row in by_task(episodes)
    ]
    seconds = sum(e.metrics.get("seconds", 0.0) for e in episodes)
    who = " with ".join(str(part) for part in (settings["agent"], settings["model"]) if part)
    return page.ReportData(
        title=f"{who} on {settings['tasks']}",
        lead=f"{summary.episodes} episodes in local sandboxes, each graded by hidden tests on a fork.",
        stats=[
            page.Stat(percent(summary.resolved), "solved", f"{summary.scored} episodes scored"),
            page.Stat("–" if summary.reward is None else f"{summary.reward:.2f}", "mean reward"),
            page.Stat(str(summary.episodes - summary.scored), "not scored", "infrastructure, never counted as 0"),
            page.Stat(clock(seconds), "time in episodes"),
        ],
        table=page.Table(["task", "solved", "reward"], rows),
        episodes=[page.episode_view(episode, episode.id) for episode in _interesting(episodes)],
        facts={"settings": json.dumps(dict(settings)), "machine": platform.platform()},
    )


def _interesting(episodes: Sequence[Episode]) -> list[Episode]:
    """Up to three: one solved, one not solved, one that could not be scored."""
    kinds = (
        [e for e in episodes if _solved(e)],
        [e for e in episodes if e.scored and not _solved(e)],
        [e for e in episodes if not e.scored],
    )
    return [kind[0] for kind in kinds if kind]
