"""``forkgym snapshots``: what is kept, and how it goes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from forkgym.sandboxes import create


def test_snapshots_are_listed_and_deleted(forkgym: Callable[..., Any]) -> None:
    with create("local") as box:
        box.write_file("kept", b"1")
        kept, other = box.snapshot("half [way]"), box.snapshot()
    shown = forkgym("snapshots", "list", "--sandbox", "local")
    assert shown.returncode == 0
    assert f"{kept.id}  local    half [way]" in shown.stdout
    assert forkgym("snapshots", "delete", kept.id).stdout == f"deleted {kept.id}\n"
    left = [entry["id"] for entry in json.loads(forkgym("snapshots", "list", "--json").stdout)]
    assert other.id in left
    assert kept.id not in left
    again = forkgym("snapshots", "delete", kept.id)
    assert again.returncode == 1
    assert f"no snapshot '{kept.id}'" in again.stderr
    assert json.loads(forkgym("snapshots", "delete", other.id, "--json").stdout) == {"deleted": [other.id]}
