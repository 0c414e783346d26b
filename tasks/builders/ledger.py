"""What a build has decided so far, on disk: killed at any point, it goes on with the next commit.

<out>/.build/ledger.jsonl      a head that says what is built from what, then one line for each decided commit
<out>/.build/repository/       the clone, if tasks are built from a URL
<out>/.build/scratch/          a task folder that is not whole yet
<out>/report.json              the same as a report, at the end
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from collections import Counter
from collections.abc import Generator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from forkgym.tasks.errors import BuildError

PLACE = ".build"
LEDGER = "ledger.jsonl"
CLONE = "repository"
REPORT = "report.json"


@dataclass(frozen=True)
class Decision:
    """What became of one candidate: ``task`` is the id of its task, else ``reason`` says why there is none."""

    candidate: str
    title: str
    task: str = ""
    reason: str = ""
    detail: str = ""
    seconds: float = 0.0

    @property
    def kept(self) -> bool:
        return bool(self.task)


class Ledger:
    """The decisions of one build. Use as ``with Ledger.open(...) as ledger``: one process at a time."""

    def __init__(self, out: Path, head: Mapping[str, Any], decisions: list[Decision], handle: int) -> None:
        self.out, self.head = out, head
        self.decisions = decisions
        self._handle = handle

    @staticmethod
    @contextlib.contextmanager
    def open(out: Path, head: Mapping[str, Any]) -> Generator[Ledger]:
        """The ledger of ``out``, made if need be. ``head`` is plain data that says what is built from what.

        Raises ``BuildError`` if another process builds there, if it was begun with another head, or if the folder
        holds something else.
        """
        refuse_foreign(out)
        path = out / PLACE / LEDGER
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise BuildError(f"another build is at work in {out}; wait for it, or name another folder") from None
            found, decisions = _read(handle)
            if found is None:
                _append(handle, dict(head))
            elif found != dict(head):
                differing = sorted(key for key in {*found, *head} if found.get(key) != head.get(key))
                was = ", ".join(f"{key} {found.get(key)!r}" for key in differing)
                raise BuildError(f"{out} was begun with {was}; go on with that, or name another folder")
            shutil.rmtree(out / PLACE / "scratch", ignore_errors=True)
            yield Ledger(out, head, decisions, handle)
        finally:
            os.close(handle)

    @property
    def decided(self) -> set[str]:
        """The candidates that need no second look."""
        return {decision.candidate for decision in self.decisions}

    @property
    def kept(self) -> list[Decision]:
        """Decisions that gave a task."""
        return [decision for decision in self.decisions if decision.kept]

    def add(self, decision: Decision) -> None:
        """Note a decision; it survives a kill from here on."""
        _append(self._handle, asdict(decision))
        self.decisions.append(decision)

    def place(self, files: Mapping[str, bytes], folder: Path) -> None:
        """Write a whole folder at once: a kill leaves it whole or absent. A folder of an undecided candidate goes."""
        scratch = self.out / PLACE / "scratch" / folder.name
        shutil.rmtree(scratch, ignore_errors=True)
        for path, data in files.items():
            (scratch / path).parent.mkdir(parents=True, exist_ok=True)
            with (scratch / path).open("wb") as file:
                file.write(data)
                os.fsync(file.fileno())
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
        scratch.rename(folder)

    def report(self, **more: Any) -> dict[str, Any]:
        """All decisions as plain data, stored as ``report.json`` beside the tasks."""
        dropped = Counter(decision.reason for decision in self.decisions if not decision.kept)
        whole = {
            **self.head,
            **more,
            "seen": len(self.decisions),
            "kept": len(self.kept),
            "dropped": dict(dropped.most_common()),
            "candidates": [asdict(decision) for decision in self.decisions],
        }
        fresh = self.out / PLACE / REPORT
        fresh.write_text(json.dumps(whole, indent=1) + "\n")
        fresh.replace(self.out / REPORT)
        return whole


def refuse_foreign(out: Path) -> None:
    """Raise ``BuildError`` if the folder holds something else than a build."""
    begun = (out / PLACE / LEDGER).exists()
    if out.exists() and not begun and (not out.is_dir() or any(child.name != PLACE for child in out.iterdir())):
        raise BuildError(f"{out} holds something else; name a new or empty folder")


def _read(handle: int) -> tuple[dict[str, Any] | None, list[Decision]]:
    """The head and the decisions; a last line that a kill cut off is taken back."""
    with os.fdopen(os.dup(handle), "rb") as file:
        file.seek(0)
        whole = file.read()
    end = whole.rfind(b"\n") + 1
    os.ftruncate(handle, end)
    os.lseek(handle, 0, os.SEEK_END)
    lines = [json.loads(line) for line in whole[:end].splitlines()]
    return (lines[0], [Decision(**line) for line in lines[1:]]) if lines else (None, [])


def _append(handle: int, line: Mapping[str, Any]) -> None:
    data = json.dumps(line).encode() + b"\n"
    while data:
        data = data[os.write(handle, data) :]
    os.fsync(handle)
