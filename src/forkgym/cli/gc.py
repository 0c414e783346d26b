"""``forkgym gc``: remove what dead runs left behind."""

from __future__ import annotations

from forkgym.cli.output import out, print_json
from forkgym.sandboxes import BACKENDS, backend
from forkgym.sandboxes.errors import SandboxUnavailableError


def collect_garbage(*, as_json: bool) -> None:
    """Ask every backend that works here to clean up. Sandboxes of living processes are left alone."""
    removed: dict[str, dict[str, int]] = {}
    for name in BACKENDS:
        try:
            removed[name] = dict(backend(name).gc())
        except SandboxUnavailableError:
            continue  # what cannot run here has left nothing here
    if as_json:
        print_json(removed)
        return
    for name, counts in removed.items():
        found = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
        out.print(f"{name}: removed {found}" if found else f"{name}: nothing was left behind")
