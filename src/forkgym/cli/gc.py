"""``forkgym gc``: remove what dead runs left behind."""

from __future__ import annotations

from forkgym.agents.harnesses.doors import sweep
from forkgym.cli.output import out, print_json
from forkgym.errors import ForkGymError, MissingExtraError
from forkgym.sandboxes import BACKENDS, backend
from forkgym.sandboxes.errors import SandboxUnavailableError


def collect_garbage(*, as_json: bool) -> int:
    """Ask every backend to clean up. Sandboxes of living processes are left alone. Exit code 1 if one failed."""
    removed: dict[str, dict[str, int]] = {}
    skipped: dict[str, str] = {}
    failed: dict[str, str] = {}
    for name in BACKENDS:
        try:
            removed[name] = dict(backend(name).gc())
        except (SandboxUnavailableError, MissingExtraError) as error:
            skipped[name] = str(error)
        except ForkGymError as error:  # the others are still cleaned
            failed[name] = str(error)
    removed["gateways"] = {"folders": sweep()}
    if as_json:
        print_json({**removed, "skipped": skipped, "failed": failed})
        return 1 if failed else 0
    for name, counts in removed.items():
        found = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
        out.print(f"{name}: removed {found}" if found else f"{name}: nothing was left behind")
    for name, why in skipped.items():
        out.print(f"{name}: skipped, it does not work here ({why})", soft_wrap=True)
    for name, why in failed.items():
        out.print(f"{name}: FAILED: {why}", soft_wrap=True)
    return 1 if failed else 0
