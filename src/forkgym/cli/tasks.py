"""``forkgym tasks``: list, show and verify tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.markup import escape
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from forkgym.cli.output import err, out, print_json, print_table
from forkgym.sandboxes import backend
from forkgym.tasks.base import Task
from forkgym.tasks.loader import load
from forkgym.tasks.verify import Proof, state_of, verify, write_proofs
from forkgym.tasks.workspace import Bases

MOST_SHOWN = 12  # of more files, a repository's, the names say more than the contents


def list_tasks(pattern: str, *, split: str | None, as_json: bool) -> None:
    """A line for each task: id, split, and the first line of what is asked."""
    tasks = load(pattern, split=split)
    rows = [(task.id, task.family, task.split, task.instruction.strip().splitlines()[0]) for task in tasks]
    if as_json:
        names = ("id", "family", "split", "instruction")
        print_json([dict(zip(names, row, strict=True)) for row in rows])
        return
    table = Table(box=None, header_style="dim", pad_edge=False)
    table.add_column("task", no_wrap=True, min_width=max(len(row[0]) for row in rows))
    table.add_column("split", no_wrap=True)
    table.add_column("what is asked", no_wrap=True, overflow="ellipsis")
    for task_id, _, part, asked in rows:
        table.add_row(escape(task_id), part, escape(asked))
    print_table(table)
    splits = sorted({row[2] for row in rows})
    counts = ", ".join(f"{sum(row[2] == name for row in rows)} {name}" for name in splits)
    out.print(f"\n{len(rows)} task{'' if len(rows) == 1 else 's'} ({counts})", style="dim")


def show_task(task_id: str, *, solution: bool, as_json: bool) -> None:
    """All that a task says, without its hidden files unless the solution is asked for."""
    found = load(task_id)
    task = found[0] if len(found) == 1 else found[task_id]  # the path of a folder is no id
    if as_json:
        print_json(_as_json(task, solution))
        return
    out.print(Panel(escape(task.instruction.strip()), title=f"[bold]{escape(task.id)}", title_align="left"))
    facts = Table(box=None, show_header=False, pad_edge=False)
    facts.add_column(style="dim")
    facts.add_column()
    for name, value in _facts(task).items():
        facts.add_row(name, escape(str(value)))
    out.print(facts)
    if len(task.files) <= MOST_SHOWN:
        for path, data in sorted(task.files.items()):
            _print_file(path, data)
    else:
        names = "\n".join(f"{len(data):>9,}  {path}" for path, data in sorted(task.files.items()))
        out.print(Panel(escape(names), title=f"{len(task.files)} files, by bytes", title_align="left"))
    if solution:
        for path, data in sorted(task.oracle.items()):
            _print_file(f"solution: {path}", data or b"(removed)")


def verify_tasks(pattern: str, *, split: str | None, repeats: int, write: bool, sandbox: str, as_json: bool) -> int:
    """Prove tasks in sandboxes. Exit code 1 if any is not sound; with ``write`` the sound proofs are stored."""
    tasks = load(pattern, split=split)
    bad = 0
    with Progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), console=err) as progress:
        bar = progress.add_task("proving", total=len(tasks))

        def tell(proof: Proof) -> None:
            nonlocal bad
            bad += not proof.good
            progress.update(bar, advance=1, description=f"proving, {bad} not sound")

        bases = Bases(backend(sandbox), keep=1)
        try:
            proofs = verify(tasks, bases, repeats, tell)
        finally:
            bases.close()
    sound = [proof for proof in proofs if proof.good]
    written = write_proofs(sound, tasks) if write else []
    if as_json:
        rows = [{"task": p.task, **p.as_dict(), "problems": list(p.problems)} for p in proofs]
        print_json({"sound": len(sound), "of": len(proofs), "proofs": rows, "written": [str(path) for path in written]})
    else:
        for proof in proofs:
            for problem in proof.problems:
                out.print(Text.assemble(("✗ ", "red"), (proof.task, "bold"), f": {problem}"), soft_wrap=True)
        out.print(f"{len(sound)} of {len(proofs)} tasks are sound: the solution scores 1, doing nothing scores 0")
        if written:
            out.print(f"proofs stored in {len(written)} file{'' if len(written) == 1 else 's'}", style="dim")
    return 0 if len(sound) == len(proofs) else 1


def _facts(task: Task) -> Mapping[str, Any]:
    budget = task.budget
    return {
        "family": task.family,
        "split": task.split,
        "tools": ", ".join(task.tools),
        "budget": f"{budget.turns or 'any number of'} turns, {budget.seconds or 'unlimited'} s",
        "judged by": f"{task.grading.runner}: {len(task.grading.tests)} hidden tests",
        "proof": _proof(task),
        "licence": task.license or "not stated",
    }


def _proof(task: Task) -> str:
    if not task.proof:
        return "none; run `forkgym tasks verify --write`"
    proof = task.proof
    text = f"solution {proof['oracle']:g}, doing nothing {proof['nothing']:g}, flaky {proof['flake_rate']:.0%}"
    return f"{text}, over {proof['repeats']} repeats ({state_of(task)})"


def _as_json(task: Task, solution: bool) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "id": task.id,
        "family": task.family,
        "split": task.split,
        "instruction": task.instruction,
        "tools": list(task.tools),
        "budget": {"turns": task.budget.turns, "seconds": task.budget.seconds, "tokens": task.budget.tokens},
        "files": {path: data.decode(errors="replace") for path, data in task.files.items()},
        "grading": {"runner": task.grading.runner, "tests": len(task.grading.tests), "timeout": task.grading.timeout},
        "proof": dict(task.proof),
        "digest": task.digest,
        "license": task.license,
        "source": task.source,
    }
    if solution:
        oracle = task.oracle.items()
        shown["solution"] = {path: None if data is None else data.decode(errors="replace") for path, data in oracle}
    return shown


def _print_file(title: str, data: bytes) -> None:
    lexer = Syntax.guess_lexer(title)
    text = Syntax(data.decode(errors="replace").rstrip("\n"), lexer, background_color="default", word_wrap=True)
    out.print(Panel(text, title=escape(title), title_align="left", border_style="dim"))
