"""The reference solution of a task as bash commands: ``sed`` where one line changed, else a heredoc."""

from __future__ import annotations

import base64
import re
import shlex
from os.path import dirname

from forkgym.tasks.base import SOLUTION, Task


def changes(task: Task) -> dict[str, bytes | None]:
    """The files of the reference solution that differ from the task's; ``None`` deletes."""
    return {path: data for path, data in sorted(task.oracle.items()) if task.files.get(path) != data}


def view_command(task: Task) -> list[str]:
    """One ``cat -n`` per file that the solution changes: ``sed_command`` goes by line numbers."""
    return [] if task.solve else [f"cat -n {_path(path)}" for path in changes(task) if path in task.files]


def write_commands(task: Task) -> list[str]:
    """One command per changed file. Run in the task's working directory, they leave exactly the solution's bytes.

    Where the solution is a program, its files are placed, and the last command runs it.
    """
    if task.solve:
        placed = [_write(f"{SOLUTION}/{path}", None, data) for path, data in sorted(task.oracle.items())]
        return [*placed, f"chmod -R +x {SOLUTION}", task.solve]
    return [_write(path, task.files.get(path), data) for path, data in changes(task).items()]


def sed_command(path: str, before: bytes, after: bytes) -> str | None:
    """``sed -i 'Nc\\TEXT'``, which replaces line N, if that turns ``before`` into ``after``; else ``None``."""
    if b"\0" in before + after or not (before.endswith(b"\n") and after.endswith(b"\n")):
        return None
    try:
        old_lines, new_lines = before.decode().split("\n"), after.decode().split("\n")
    except UnicodeDecodeError:
        return None
    if len(old_lines) != len(new_lines):
        return None
    changed = [i for i, (old, new) in enumerate(zip(old_lines, new_lines, strict=True)) if old != new]
    if len(changed) != 1 or not new_lines[changed[0]]:  # an empty text would delete the line
        return None
    (number,) = changed
    text = new_lines[number].replace("\\", "\\\\").replace("'", "'\\''")
    return f"sed -i '{number + 1}c\\{text}' {_path(path)}"


def _write(path: str, before: bytes | None, after: bytes | None) -> str:
    name = _path(path)
    if after is None:
        return f"rm {name}"
    if before is not None and (command := sed_command(path, before, after)):
        return command
    parent = dirname(path)
    make = f"mkdir -p {_path(parent)} && " if parent and before is None else ""
    text = _plain(after)
    if text is None:
        return f"{make}base64 -d > {name} <<'EOF'\n{base64.encodebytes(after).decode()}EOF"
    mark = "EOF"
    while mark in text.split("\n"):
        mark += "_"
    return f"{make}cat > {name} <<'{mark}'\n{text}{mark}"


def _plain(data: bytes) -> str | None:
    """The text of a file that a heredoc inside a fenced block can carry, else ``None``."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    if "\0" in text or not text.endswith("\n") or re.search(r"^```", text, re.MULTILINE):
        return None
    return text


def _path(path: str) -> str:
    return shlex.quote(f"./{path}" if path.startswith("-") else path)
