"""``forkgym harness``: which agent programs can play, installing them, and the check that their records are exact."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict

from rich.markup import escape
from rich.table import Table

from forkgym.agents.harnesses import store
from forkgym.agents.harnesses.base import Harness
from forkgym.agents.harnesses.check import Finding, check
from forkgym.agents.harnesses.registry import HARNESSES, HOST, find_harness
from forkgym.cli.output import clock, err, out, print_json, print_table


def list_harnesses(*, as_json: bool) -> None:
    """A line for each harness."""
    found = [find_harness(name) for name in HARNESSES]
    if as_json:
        print_json([_plain(harness) for harness in found])
        return
    table = Table(box=None, header_style="dim", pad_edge=False)
    for title in ("harness", "installed", "packages", "speaks", "licence"):
        table.add_column(title, no_wrap=True)
    table.add_column("own prompt", justify="right", no_wrap=True)
    for harness in found:
        installed = "yes" if store.find(harness) else ""
        packages = escape(", ".join(harness.packages))
        prompt = f"~{harness.prompt_tokens:,} tokens"
        table.add_row(harness.name, installed, packages, harness.dialect, harness.licence, prompt)
    print_table(table)
    out.print("\n`forkgym harness install NAME` installs one.", style="dim")


def install_harnesses(names: Sequence[str]) -> None:
    """Install each, outside of sandboxes; what is there already is left as it is."""
    for harness in [find_harness(name) for name in names]:
        began = time.monotonic()
        with err.status(f"installing {harness.name} …"):
            found = store.install(harness)
        out.print(f"{harness.name}: {found.folder} ({clock(time.monotonic() - began)})", markup=False, soft_wrap=True)


def check_harnesses(names: Sequence[str], *, sandbox: str, as_json: bool) -> int:
    """Run the conformance check of each. Exit code 1 if a case failed."""
    harnesses = {name: find_harness(name.removesuffix(HOST)) for name in names}
    for harness in harnesses.values():
        store.require(harness)
    found: dict[str, list[Finding]] = {}
    for name, harness in harnesses.items():
        if not as_json:
            out.print(f"[bold]{escape(name)}[/] [dim]{escape(', '.join(harness.packages))}[/]")
        found[name] = check(harness, sandbox=sandbox, host=name.endswith(HOST), echo=None if as_json else _print)
    if as_json:
        print_json({name: [asdict(finding) for finding in findings] for name, findings in found.items()})
    return 0 if all(finding.passed for findings in found.values() for finding in findings) else 1


def _print(finding: Finding) -> None:
    mark = "[green]✓[/]" if finding.passed else "[red]✗[/]"
    out.print(f"  {mark} {finding.case}  [dim]{escape(finding.detail)}[/]", soft_wrap=True)


def _plain(harness: Harness) -> dict[str, object]:
    found = store.find(harness)
    return {
        "name": harness.name,
        "packages": list(harness.packages),
        "dialect": harness.dialect,
        "prompt_tokens": harness.prompt_tokens,
        "licence": harness.licence,
        "installed": None if found is None else str(found.folder),
    }
