"""Tasks as Harbor task directories."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from forkgym.sandboxes.base import StrPath
from forkgym.tasks.base import Task
from forkgym.tasks.errors import TaskFormatError
from forkgym.tasks.importers.harbor import INSTRUCTION, OURS, shown_instruction, slug
from forkgym.tasks.importers.harbor_config import CONFIG
from forkgym.tasks.importers.harbor_runner import TESTS

BASE = "python:3.11-slim"
# How the listed tests are run by their tool alone. Each must be told by its exit code if any test did not pass.
COMMANDS = {
    "unittest": "python3 -m unittest",
    "unittest-suite": "python3 -m unittest",
    "pytest": "python3 -m pytest -q -p no:cacheprovider",
}
_PYTEST = "RUN python3 -m pip install --no-cache-dir pytest"
_MB = 1 << 20


def to_harbor(task: Task, directory: StrPath, *, base: str | None = None) -> Path:
    """Write the task as a Harbor task directory, whole or not at all, and return its path.

    A task that came from Harbor gets its files back as they were. Of others, the runners in ``COMMANDS`` can be
    written: the hidden tests run in a fresh environment that gets the working directory and nothing else, on top of
    the Docker image ``base`` (``BASE`` if none is given). Raises ``TaskFormatError`` for a task that has no such form,
    and for a directory that is there already.
    """
    target = Path(directory)
    if target.exists():
        raise TaskFormatError(f"{target}: is there already; name a new directory")
    returned = task.grading.runner == "harbor"
    if returned and base is not None:
        raise TaskFormatError(f"{task.id}: came from Harbor with an environment of its own; leave base out")
    contents = _returned(task) if returned else _written(task, base or BASE)
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        for path, data in contents.items():
            place = scratch / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
            place.chmod(0o755 if data.startswith(b"#!") else 0o644)
        scratch.chmod(0o755)
        os.rename(scratch, target)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    return target


def _returned(task: Task) -> dict[str, bytes]:
    """The directory that the task came from. What was changed since then, if Harbor has a place for it, is kept."""
    if CONFIG not in task.origin or INSTRUCTION not in task.origin:
        raise TaskFormatError(f"{task.id}: its origin holds no {CONFIG} and {INSTRUCTION}; import it from Harbor again")
    contents = dict(task.origin)
    if shown_instruction(INSTRUCTION, contents[INSTRUCTION]) != task.instruction:
        contents[INSTRUCTION] = task.instruction.encode() + b"\n"
    prefix = f"{TESTS}/"
    tests = {path.removeprefix(prefix): data for path, data in task.hidden.items() if path.startswith(prefix)}
    contents |= {f"tests/{path}": data for path, data in tests.items()}
    return contents | {f"solution/{path}": data for path, data in task.oracle.items() if data is not None}


def _written(task: Task, base: str) -> dict[str, bytes]:
    if task.grading.runner not in COMMANDS or task.solve:
        known = ", ".join(sorted(COMMANDS))
        raise TaskFormatError(
            f"{task.id}: the runner {task.grading.runner!r} has no form in Harbor; these have: {known}"
        )
    if task.links:
        raise TaskFormatError(f"{task.id}: holds symbolic links, which a Harbor directory cannot carry")
    work = shlex.quote(task.workdir)
    contents: dict[str, bytes] = {
        CONFIG: toml(_config(task)).encode(),
        INSTRUCTION: task.instruction.encode() + b"\n",
        "environment/Dockerfile": _dockerfile(task, base).encode(),
        "tests/test.sh": _test_script(task, work).encode(),
        "solution/solve.sh": _solve_script(task, work).encode(),
    }
    contents |= {f"environment/files/{path}": data for path, data in task.files.items()}
    contents |= {f"tests/hidden/{path}": data for path, data in task.hidden.items()}
    return contents | {f"solution/files/{path}": data for path, data in task.oracle.items() if data is not None}


def _config(task: Task) -> dict[str, Any]:
    ours = {"id": task.id, "family": task.family, "split": task.split, "license": task.license, "source": task.source}
    limits = task.limits
    machine = {
        "cpus": limits.cpu,
        "memory_mb": limits.memory and max(1, limits.memory // _MB),
        "storage_mb": limits.disk and max(1, limits.disk // _MB),
    }
    return {
        "schema_version": "1.4",
        "artifacts": [task.workdir],
        "task": {"name": f"{OURS}/{slug(task.id).replace('/', '-')}"},
        "metadata": {OURS: ours},
        "verifier": {"timeout_sec": float(task.grading.timeout), "environment_mode": "separate"},
        "agent": {} if task.budget.seconds is None else {"timeout_sec": float(task.budget.seconds)},
        "environment": {
            "network_mode": "no-network",
            "workdir": task.workdir,
            **{key: value for key, value in machine.items() if value is not None},
            **({"env": dict(task.env)} if task.env else {}),
        },
    }


def _dockerfile(task: Task, base: str) -> str:
    lines = [f"FROM {base}", f"WORKDIR {task.workdir}"]
    lines += [_PYTEST] if task.grading.runner == "pytest" else []
    lines += ["COPY files/ ./"] if task.files else []
    lines += [f"RUN chmod +x {shlex.join(task.executables)}"] if task.executables else []
    for command in task.setup:
        if "\n" in command:
            raise TaskFormatError(f"{task.id}: setup: a command of several lines has no form in a Dockerfile")
        lines.append(f"RUN {command}")
    return "\n".join(lines) + "\n"


def _test_script(task: Task, work: str) -> str:
    command = f"{COMMANDS[task.grading.runner]} {shlex.join(task.grading.tests)}"
    return (
        "#!/bin/bash\n"
        f"cd {work} && cp -R /tests/hidden/. . && PYTHONDONTWRITEBYTECODE=1 {command}\n"
        "if [ $? -eq 0 ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n"
    )


def _solve_script(task: Task, work: str) -> str:
    gone = [path for path, data in task.oracle.items() if data is None]
    lines = ["#!/bin/bash", "set -e", f"cd {work}"]
    lines += [f"rm -f -- {shlex.join(gone)}"] if gone else []
    lines += ["cp -R /solution/files/. ."] if len(gone) < len(task.oracle) else []
    return "\n".join(lines) + "\n"


def toml(data: Mapping[str, Any], above: tuple[str, ...] = ()) -> str:
    """A TOML document of plain values, lists of them, and tables."""
    plain = [f"{_key(key)} = {_value(value)}" for key, value in data.items() if not isinstance(value, Mapping)]
    parts = [("\n".join(plain) + "\n") if plain else ""]
    for key, value in data.items():
        if isinstance(value, Mapping):
            name = (*above, _key(key))
            parts.append(f"\n[{'.'.join(name)}]\n{toml(value, name)}")  # pyright: ignore
    return "".join(parts)


def _key(key: str) -> str:
    bare = key and all(letter.isascii() and (letter.isalnum() or letter in "-_") for letter in key)
    return key if bare else _value(key)


def _value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(item) for item in value) + "]"  # pyright: ignore
    if isinstance(value, bool):
        return str(value).lower()
    # A JSON string is a TOML string, but for one control character that JSON leaves as it is.
    return json.dumps(value, ensure_ascii=False, allow_nan=False).replace("\x7f", "\\u007f")
