"""``forkgym replay`` and ``forkgym rescore``: saved episodes, acted or graded again."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from forkgym.agents.base import Episode
from forkgym.agents.records import EpisodeWriter, read_episodes
from forkgym.agents.replay import Divergence, Replay, actionless, replay
from forkgym.agents.rescore import Rescored, Rescorer
from forkgym.cli.output import err, out, print_json, print_table
from forkgym.errors import ConfigError
from forkgym.registry import unknown

T = TypeVar("T")
RESCORED = ".rescored.jsonl"
SHOWN_LINES = 20


@dataclass(frozen=True)
class Recorded:
    """Files of records, and how their episodes were played, as far as their run's folder says."""

    files: list[Path]
    tasks: str | None = None
    sandbox: str = "local"
    reward: Any = "resolved"
    options: dict[str, Any] = field(default_factory=dict[str, Any])

    def episodes(self) -> dict[Path, list[Episode]]:
        """The episodes of each file. Says which last lines are torn; raises ``ConfigError`` if nothing is whole."""
        logs = {file: read_episodes(file) for file in self.files}
        torn = [file for file, log in logs.items() if log.dropped]
        if not any(log.episodes for log in logs.values()):
            why = "their only line is torn" if torn else "they are empty"
            raise ConfigError(f"no whole record in {', '.join(map(str, self.files))}: {why}")
        for file in torn:
            err.print(
                Text(f"{file}: its last line is torn (a crash while writing) and left out", "yellow"), soft_wrap=True
            )
        return {file: log.episodes for file, log in logs.items()}

    def source(self, given: str | None, episodes: Sequence[Episode]) -> Any:
        """The tasks to play: what the command says, else what the run says, else the library."""
        named = {episode.task for episode in episodes} - {""}
        if not named:
            raise ConfigError(
                "no record here belongs to a task: what `forkgym gateway` wrote cannot be played or graded"
            )
        return given or self.tasks or sorted(named)


def find(path: Path) -> Recorded:
    """The records of a run's folder, or of one file in it. Raises ``ConfigError`` if there are none."""
    if path.is_file():
        files, folders = [path], [path.parent, path.parent.parent]
    else:
        found = [*path.glob("*.jsonl"), *path.glob("episodes/*.jsonl")]
        files = sorted(file for file in found if not file.name.endswith(RESCORED) and file.name != "metrics.jsonl")
        folders = [path]
    if not files:
        raise ConfigError(f"{path} holds no records of episodes; name a run's folder or a file such as episodes.jsonl")
    for folder in folders:
        if (folder / "eval.json").is_file():
            return _of_eval(files, folder / "eval.json")
        if (folder / "recipe.json").is_file():
            return _of_recipe(files, folder / "recipe.json")
    return Recorded(files)


def replay_command(
    record: str, id: str | None, *, tasks: str | None, sandbox: str | None, ignore: Sequence[str], as_json: bool
) -> int:
    """Act episodes again. Exit code 0 if all of them came out as recorded, else 1."""
    path, _, named = record.partition("#") if not Path(record).exists() else (record, "", "")
    run = find(Path(path))
    episodes = [episode for log in run.episodes().values() for episode in log]
    if wanted := id or named:
        episodes = _named(episodes, wanted, path)
    source, box = run.source(tasks, episodes), sandbox or run.sandbox
    left = {episode.id: why for episode in episodes if (why := actionless(episode))}
    if len(left) < len(episodes):  # of a mix of players, those that can be
        episodes = [episode for episode in episodes if episode.id not in left]
        for why, count in Counter(left.values()).items():
            err.print(Text(f"{count} left out: {why}", "yellow"), soft_wrap=True)
    results = [
        replay(one, source, ignore=ignore, sandbox=box, reward=run.reward, **run.options)
        for one in err_progress(episodes, "replaying")
    ]
    if as_json:
        print_json([_plain_replay(result) for result in results])
    else:
        for result in results:
            _print_replay(result)
    return 0 if all(result.identical for result in results) else 1


def rescore_command(
    run: Path,
    *,
    tasks: str | None,
    sandbox: str | None,
    reward: str | None,
    concurrency: int,
    write: bool,
    as_json: bool,
) -> int:
    """Grade episodes again. Exit code 0 if no reward changed and all that ended could be graded, else 1."""
    recorded = find(run)
    targets = {file: file.with_name(file.name.removesuffix(".jsonl") + RESCORED) for file in recorded.files}
    if write and (there := [target for target in targets.values() if target.exists()]):
        raise ConfigError(f"{there[0]} is there already; remove it, or leave --write out")
    logs = recorded.episodes()
    every = [episode for log in logs.values() for episode in log]
    grade = Rescorer(
        recorded.source(tasks, every),
        sandbox=sandbox or recorded.sandbox,
        reward=reward or recorded.reward,
        **recorded.options,
    )
    results: list[Rescored] = []
    with ThreadPoolExecutor(concurrency, "forkgym-rescore") as pool:
        for result in err_progress(pool.map(grade, every), "grading", total=len(every)):
            results.append(result)
    if write:
        done = iter(results)
        for file, log in logs.items():
            with EpisodeWriter(targets[file]) as writer:
                for _ in log:
                    writer.write(next(done).after)
    if as_json:
        print_json(_plain_rescored(results, [str(t) for t in targets.values()] if write else []))
    else:
        _print_rescored(results, list(targets.values()) if write else [])
    ended = [result for result in results if result.before.status in ("finished", "truncated")]
    return 1 if any(r.changed for r in results) or any(r.how == "left" for r in ended) else 0


def err_progress(items: Iterable[T], what: str, total: int | None = None) -> Iterator[T]:
    """The items one by one, with a bar on standard error."""
    columns = [TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn()]
    with Progress(*columns, console=err) as progress:
        yield from progress.track(items, total=total)


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
    return _table(path, "the file", found)


def _table(path: Path, name: str, value: Any) -> dict[str, Any]:
    return cast(dict[str, Any], _part(path, name, value, dict))


def _part(path: Path, name: str, value: Any, kind: type[T]) -> T:
    """``value`` if it is of its kind. Raises ``ConfigError`` naming the file and how to go on without it."""
    if not isinstance(value, kind):
        got = "missing" if value is None else f"of type {type(value).__name__}"
        raise ConfigError(
            f"{path}: {name} is {got}, where a {kind.__name__} belongs, so how its episodes were played is not known; "
            "restore the file, or move it away and give --tasks and --sandbox"
        )
    return value


def _of_eval(files: list[Path], path: Path) -> Recorded:
    settings = _read(path)
    tasks, sandbox = (_part(path, f"{key!r}", settings.get(key), str) for key in ("tasks", "sandbox"))
    return Recorded(files, tasks, sandbox)


def _of_recipe(files: list[Path], path: Path) -> Recorded:
    recipe = _read(path)
    env = _table(path, "'env'", recipe.get("env", {}))
    reward = _table(path, "'reward'", recipe.get("reward", {}))
    options = dict(_table(path, "'env.options'", env.get("options", {})))
    spec = reward.get("name") or "resolved"
    if reward.get("weights") is not None:
        spec = {"weights": reward["weights"], "gate": reward.get("gate")}
    return Recorded(files, env.get("tasks"), options.pop("sandbox", "local"), spec, options)


def _named(episodes: Sequence[Episode], id: str, path: str) -> list[Episode]:
    found = [episode for episode in episodes if episode.id == id]
    if not found:
        raise ConfigError(f"{path}: {unknown('episode', id, [episode.id for episode in episodes])}")
    return found[-1:]  # an attempt that was made again stands last


def _plain_replay(result: Replay) -> dict[str, Any]:
    parted = None if result.divergence is None else asdict(result.divergence)
    return {
        "episode": result.episode,
        "identical": result.identical,
        "steps": result.steps,
        "divergence": parted,
        "task_changed": result.task_changed,
    }


def _print_replay(result: Replay) -> None:
    steps = f"{result.steps} step{'' if result.steps == 1 else 's'}"
    if result.divergence is None:
        out.print(Text.assemble(("✓ ", "green"), result.episode, f": identical, {steps}"))
    else:
        where = f"differs at turn {result.divergence.turn} ({result.divergence.what})"
        out.print(Text.assemble(("✗ ", "red"), result.episode, f": {where}"))
        _print_divergence(result.divergence)
    if result.task_changed:
        err.print(f"  the task of {result.episode} has changed since it was recorded", style="yellow", markup=False)


def _print_divergence(found: Divergence) -> None:
    for title, text in (("recorded", found.recorded), ("replayed", found.replayed)):
        lines = text.splitlines()[:SHOWN_LINES] or ["(nothing)"]
        out.print(Text.assemble((f"  {title}: ", "dim"), "\n            ".join(lines)), soft_wrap=True)


def _plain_rescored(results: Sequence[Rescored], written: list[str]) -> dict[str, Any]:
    return {
        "episodes": len(results),
        "how": dict(Counter(result.how for result in results)),
        "changed": [
            {"episode": r.before.id, "before": r.before.reward, "after": r.after.reward} for r in results if r.changed
        ],
        "left": [{"episode": r.before.id, "why": r.why} for r in results if r.how == "left"],
        "written": written,
    }


def _print_rescored(results: Sequence[Rescored], written: Sequence[Path]) -> None:
    table = Table(box=None, header_style="dim", pad_edge=False)
    for name in ("episode", "before", "after"):
        table.add_column(name, no_wrap=name == "episode")
    for result in results:
        if result.changed:
            table.add_row(Text(result.before.id), _number(result.before.reward), _number(result.after.reward))
    if table.row_count:
        print_table(table)
    graded = [result for result in results if result.how != "left"]
    changed = sum(result.changed for result in results)
    out.print(f"{len(graded)} of {len(results)} episodes graded again, {changed} rewards changed")
    for why, count in Counter(result.why for result in results if result.how == "left").items():
        err.print(Text(f"{count} left as they were: {why}", "yellow"), soft_wrap=True)
    for path in written:
        out.print(f"records: {path}", style="dim", markup=False, soft_wrap=True)


def _number(reward: float | None) -> str:
    return "–" if reward is None else f"{reward:g}"
