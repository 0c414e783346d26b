"""``forkgym eval --harness a,b,c``: the same tasks played by several harnesses or agents, as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from forkgym.agents.errors import FailureBudgetError
from forkgym.agents.summary import summarize
from forkgym.cli.evaluate import Measured, by_task, measure, plain
from forkgym.cli.output import err, out, percent, print_json, print_table
from forkgym.cli.players import WITHOUT_MODEL
from forkgym.errors import ConfigError


def evaluate_matrix(
    tasks: str, names: Sequence[str], *, model: str | None, out: Path | None, as_json: bool, **options: Any
) -> int:
    """Evaluate one after the other. Exit code 1 if some episodes could not be scored.

    Each has a folder of records of its own, below ``out`` where it is given. One of which too much fails does not keep
    the others from playing.
    """
    if len(set(names)) < len(names) or not all(names):
        raise ConfigError(f"--harness names one or more different players, not {','.join(names)!r}")
    done: dict[str, Measured] = {}
    lost: dict[str, str] = {}
    for name in names:
        err.print(f"[bold]{escape(name)}[/]")
        where = None if out is None else out / name
        try:
            done[name] = measure(
                tasks, agent=name, model=None if name in WITHOUT_MODEL else model, out=where, **options
            )
        except FailureBudgetError as error:
            lost[name] = str(error)
            err.print(f"{name}: {error}", style="yellow", markup=False, soft_wrap=True)
    if as_json:
        print_json({"players": {name: plain(each) for name, each in done.items()}, "failed": lost})
    else:
        _print(names, done)
    scored = all(episode.scored for each in done.values() for episode in each.episodes)
    return 0 if scored and not lost else 1


def _print(names: Sequence[str], done: Mapping[str, Measured]) -> None:
    table = Table(box=None, header_style="dim", pad_edge=False)
    table.add_column("task", no_wrap=True)
    for name in names:
        table.add_column(escape(name), justify="right")
    cells: dict[str, dict[str, str]] = {}
    for name, each in done.items():
        for row in by_task(each.episodes):
            colour = "green" if row["solved"] == row["episodes"] else "red" if not row["solved"] else "yellow"
            missing = row["episodes"] - row["scored"]
            shown = f"[{colour}]{row['solved']}/{row['episodes']}[/]" + (
                f" [dim]({missing} lost)[/]" if missing else ""
            )
            cells.setdefault(row["task"], {})[name] = shown
    for task, row in cells.items():
        table.add_row(escape(task), *(row.get(name, "–") for name in names))
    table.add_section()
    totals = (percent(summarize(done[name].episodes).resolved) if name in done else "–" for name in names)
    table.add_row("[bold]solved[/]", *totals)
    print_table(table)
    for name, each in done.items():
        out.print(f"{name}: {each.folder}", style="dim", markup=False, soft_wrap=True)
