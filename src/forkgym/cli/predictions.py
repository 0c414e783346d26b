"""``forkgym eval --dataset ROWS --predictions FILE``: a SWE-bench prediction file, graded in our sandboxes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from forkgym.cli.output import err, out, print_json
from forkgym.errors import ConfigError
from forkgym.sandboxes import backend
from forkgym.sandboxes.base import Backend
from forkgym.tasks.errors import TaskFormatError
from forkgym.tasks.importers.swebench_eval import Outcome, Prediction, evaluate, missing, read_predictions, run_report
from forkgym.tasks.importers.swebench_rows import Row, read_rows, tasks_of_rows
from forkgym.tasks.taskset import TaskSet

SHOWN = ("total", "submitted", "completed", "resolved", "unresolved", "empty_patch", "error")


def grade_predictions(
    dataset: Path,
    predictions: str,
    *,
    image: str | None,
    repositories: Path | None,
    assets: Path | None,
    run_id: str,
    timeout: float,
    sandbox: str,
    concurrency: int,
    folder: Path,
    as_json: bool,
) -> int:
    """Grade the predictions and write swebench's report. Exit code 1 if some could not be graded here."""
    if not run_id or "/" in run_id or run_id in (".", ".."):
        raise ConfigError(f"--run-id {run_id!r}: must be a plain name, since it names a folder")
    rows = read_rows(dataset)
    given = read_predictions(predictions, rows)
    wanted = [row for row in rows if row.id in given and not given[row.id].empty]
    tasks = tasks_of_rows(wanted, image=image, repositories=repositories, assets=assets, timeout=timeout)
    machines = backend(sandbox)
    lacking = _preflight(wanted, tasks, machines, concurrency)
    logs = folder / "logs" / "run_evaluation" / run_id
    outcomes = _evaluate(tasks, lacking, given, machines, logs, concurrency)
    report = run_report(rows, given, logs)
    path = folder / f"{next(iter(given.values())).folder}.{run_id}.json"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=4) + "\n", "utf-8")
    failed = [outcome for outcome in outcomes.values() if outcome.stage == "error"]
    if as_json:
        print_json({"report": report, "path": str(path), "reasons": {o.instance: o.reason for o in outcomes.values()}})
    else:
        _print(report, list(outcomes.values()), path)
    return 1 if failed else 0


def _preflight(rows: Sequence[Row], tasks: TaskSet, machines: Backend, concurrency: int) -> dict[str, str]:
    """Why instances cannot be graded here, told before anything runs. Raises ``ConfigError`` if none can."""

    def look(row: Row) -> str:
        try:
            return missing(tasks[row.id.lower()], machines)
        except TaskFormatError as error:
            return str(error)

    with err.status("Looking for images, repositories and test programs …"), ThreadPoolExecutor(concurrency) as pool:
        found = {row.id: reason for row, reason in zip(rows, pool.map(look, rows), strict=True)}
    lacking = {instance: reason for instance, reason in found.items() if reason}
    for instance, reason in lacking.items():
        err.print(
            Text.assemble(("cannot be graded here: ", "yellow"), (instance, "bold"), f": {reason}"), soft_wrap=True
        )
    if lacking and len(lacking) == len(rows):
        raise ConfigError(f"none of the {len(lacking)} predictions can be graded here, for the reasons above")
    return lacking


def _evaluate(
    tasks: TaskSet,
    lacking: Mapping[str, str],
    given: Mapping[str, Prediction],
    machines: Backend,
    logs: Path,
    concurrency: int,
) -> dict[str, Outcome]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    resolved = 0
    with Progress(*columns, console=err) as progress:
        bar = progress.add_task("grading", total=len(given))

        def tell(outcome: Outcome) -> None:
            nonlocal resolved
            resolved += outcome.stage == "resolved"
            progress.update(bar, advance=1, description=f"grading, {resolved} resolved")

        return evaluate(
            lambda instance: tasks[instance.lower()], given, machines, logs,
            unavailable=lacking, concurrency=concurrency, progress=tell,
        )  # fmt: skip


def _print(report: Mapping[str, Any], outcomes: Sequence[Outcome], path: Path) -> None:
    colours = {"resolved": "green", "unresolved": "red", "empty": "dim"}
    for outcome in outcomes:
        first = outcome.reason.strip().split("\n")[0]
        style = colours.get(outcome.stage, "yellow")
        out.print(Text.assemble((f"{outcome.stage:<11}", style), outcome.instance, f"  {first}"), soft_wrap=True)
    counts = ", ".join(f"{report[f'{name}_instances']} {name.replace('_', ' ')}" for name in SHOWN)
    out.print(f"\n{counts}\nreport: {path}", markup=False, soft_wrap=True)
