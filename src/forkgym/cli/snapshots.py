"""``forkgym snapshots``: list and delete the states that sandboxes were kept in."""

from __future__ import annotations

from dataclasses import asdict

from rich.markup import escape
from rich.table import Table

from forkgym.cli.output import err, out, print_json, print_table
from forkgym.errors import MissingExtraError
from forkgym.sandboxes import BACKENDS, Snapshot, backend
from forkgym.sandboxes.errors import SandboxUnavailableError


def list_snapshots(*, sandbox: str | None, as_json: bool) -> None:
    """A line for each snapshot, oldest first, of one backend or of all that work here."""
    found: list[Snapshot] = []
    for name in [sandbox] if sandbox else BACKENDS:
        try:
            found += backend(name).snapshots()
        except (SandboxUnavailableError, MissingExtraError) as error:
            if sandbox:
                raise
            err.print(f"[dim]{name}: skipped, it does not work here ({escape(str(error))})[/dim]", soft_wrap=True)
    if as_json:
        print_json([asdict(snapshot) for snapshot in found])
        return
    table = Table(box=None, header_style="dim", pad_edge=False)
    for title in ("snapshot", "backend", "label"):
        table.add_column(title, no_wrap=True)
    for snapshot in found:
        table.add_row(snapshot.id, snapshot.backend, escape(snapshot.label))
    print_table(table)
    if not found:
        out.print("no snapshots", style="dim")


def delete_snapshots(ids: list[str], *, sandbox: str, as_json: bool) -> None:
    """Forget these snapshots of a backend; sandboxes that stand on them go on."""
    keeper = backend(sandbox)
    for snapshot in ids:
        keeper.delete_snapshot(snapshot)
        if not as_json:
            out.print(f"deleted {escape(snapshot)}")
    if as_json:
        print_json({"deleted": ids})
