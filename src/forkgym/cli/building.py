"""``forkgym tasks build`` and ``synth``: tasks from a repository's history, and from mistakes put into its sources."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from forkgym.cli.output import clock, err, out, print_json, print_table
from forkgym.registry import resolve
from forkgym.sandboxes import backend

BUILDERS = {
    "build": "forkgym.tasks.builders.autobuild:build_from_repo",
    "build options": "forkgym.tasks.builders.autobuild:Options",
    "synth": "forkgym.tasks.builders.synthesis:synthesize",
    "synth options": "forkgym.tasks.builders.synthesis:SynthOptions",
}
EXTRAS = dict.fromkeys(BUILDERS, "swe")


def build_tasks(
    repository: str,
    *,
    target: Path,
    limit: int,
    commits: int,
    repeats: int,
    split: str,
    image: str,
    rewriter: str | None,
    sandbox: str,
    as_json: bool,
) -> int:
    """Build tasks from the history of a repository; exit code 1 if none could be kept."""
    build: Callable[..., dict[str, Any]] = resolve("builder", "build", BUILDERS, EXTRAS)
    options = resolve("builder", "build options", BUILDERS, EXTRAS)(limit, commits, repeats, split, image)
    rewrite = resolve("rewriter", rewriter, {}) if rewriter else None
    report = build(repository, target, backend(sandbox), options, rewrite, _tell)
    return _show(report, target, as_json)


def synthesize_tasks(
    repository: str,
    *,
    target: Path,
    kind: str,
    limit: int,
    combine: int,
    seed: int,
    repeats: int,
    split: str,
    image: str,
    sandbox: str,
    as_json: bool,
) -> int:
    """Put mistakes into the newest commit of a repository; exit code 1 if no task could be kept."""
    synthesize: Callable[..., dict[str, Any]] = resolve("builder", "synth", BUILDERS, EXTRAS)
    options = resolve("builder", "synth options", BUILDERS, EXTRAS)(kind, limit, combine, seed, repeats, split, image)
    return _show(synthesize(repository, target, backend(sandbox), options, _tell), target, as_json)


def _tell(decision: Any) -> None:
    mark = "[green]✓[/green]" if decision.kept else "[dim]–[/dim]"
    what = decision.task or decision.reason
    line = f"{mark} {escape(decision.candidate[:10])} {escape(decision.title)} [dim]{escape(what)}[/dim]"
    err.print(line, no_wrap=True, overflow="ellipsis")


def _show(report: dict[str, Any], target: Path, as_json: bool) -> int:
    if as_json:
        print_json(report)
    else:
        table = Table(box=None, header_style="dim", pad_edge=False)
        table.add_column("candidates", justify="right")
        table.add_column("what became of them")
        table.add_row(str(report["kept"]), "tasks")
        for reason, count in report["dropped"].items():
            table.add_row(str(count), escape(f"dropped: {reason}"))
        if report["unmeasured"]:
            table.add_row(str(len(report["unmeasured"])), "not decided, because the machine failed: run this again")
        print_table(table)
        out.print(f"\n{report['kept']} tasks in {escape(str(target))}, in {clock(report['seconds'])}", style="dim")
        out.print("report.json there says why each candidate was dropped", style="dim")
    return 0 if report["kept"] else 1
