"""``forkgym tasks import`` and ``export``: tasks of other formats, as task folders of ours and back."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from rich.text import Text

from forkgym.cli.output import err, out, print_json
from forkgym.errors import ConfigError, ForkGymError
from forkgym.registry import resolve
from forkgym.sandboxes.errors import SandboxError
from forkgym.tasks.base import Task
from forkgym.tasks.builders.taskfolder import contents
from forkgym.tasks.errors import TaskFormatError
from forkgym.tasks.folder import TaskFolder
from forkgym.tasks.loader import load

IMPORTERS = {
    "harbor": "forkgym.tasks.importers.harbor:from_harbor",
    "swebench": "forkgym.tasks.importers.swebench_rows:from_swebench",
}
EXPORTERS = {"harbor": "forkgym.tasks.importers.harbor_export:to_harbor"}
BUILDERS = {"harbor": "forkgym.tasks.importers.harbor_images:build"}


def import_tasks(
    kind: str, source: Path, *, target: Path, options: dict[str, Any], network: str | None = None, as_json: bool
) -> int:
    """Write a folder for each task that can be imported, whole or not at all. Exit code 1 if any could not.

    With ``network``, the Docker network of the build, the task's own image is built first.
    """
    make = resolve("importer", kind, IMPORTERS)
    found = make(source, **options)
    written: dict[str, str] = {}
    refused: dict[str, str] = {}
    for entry in found.entries:
        try:
            task = entry.build()
            if network is not None:
                resolve("image builder", kind, BUILDERS)(task, network)
            written[task.id] = str(_write(task, target))
        except (TaskFormatError, SandboxError) as error:
            refused[entry.id] = str(error)
    if as_json:
        print_json({"imported": written, "refused": refused})
    else:
        for task_id, reason in refused.items():
            err.print(Text.assemble(("refused: ", "yellow"), (task_id, "bold"), f": {reason}"), soft_wrap=True)
        out.print(f"{len(written)} of {len(found)} tasks imported into {target}", markup=False, soft_wrap=True)
        if written:
            out.print(f"next: forkgym tasks verify {target} --write", style="dim", markup=False, soft_wrap=True)
    return 1 if refused else 0


def export_task(kind: str, task_id: str, target: Path, *, options: dict[str, Any], as_json: bool) -> None:
    """Write one task in another format."""
    write = resolve("exporter", kind, EXPORTERS)
    chosen = load(task_id)
    if len(chosen) != 1:
        raise ConfigError(f"{task_id!r} names {len(chosen)} tasks; give one")
    path = write(chosen[0], target, **options)
    if as_json:
        print_json({"task": chosen[0].id, "path": str(path)})
    else:
        out.print(f"{chosen[0].id} exported to {path}", markup=False, soft_wrap=True)


def _write(task: Task, target: Path) -> Path:
    """The folder of one task, put in place at once, and read back: it must be the same task."""
    folder = target / task.id
    if folder.exists():
        raise TaskFormatError(f"{folder}: is there already; remove it, or choose another --out")
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=".import-", dir=folder.parent))
    try:
        for path, data in contents(task).items():
            place = scratch / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
        if TaskFolder(scratch, task.id).build(0).digest != task.digest:
            raise ForkGymError(f"{task.id}: reads differently than it was written; this is a mistake in ForkGym")
        scratch.chmod(0o755)
        os.rename(scratch, folder)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    return folder
