"""The reference solution of a task as bash commands: the shortest ``sed`` where one line changed, else a heredoc."""

from __future__ import annotations

import base64
import re
import shlex
from collections.abc import Iterator
from itertools import takewhile
from os.path import dirname

from forkgym.tasks.base import Task

_TOKEN = re.compile(r"\w+|\s+|[^\w\s]")


def changes(task: Task) -> dict[str, bytes | None]:
    """The files of the reference solution that differ from the task's; ``None`` deletes."""
    return {path: data for path, data in sorted(task.oracle.items()) if task.files.get(path) != data}


def view_command(task: Task) -> list[str]:
    """One ``cat`` of all files that the solution changes, if there are any."""
    paths = [_path(path) for path in changes(task) if path in task.files]
    return [f"cat {' '.join(paths)}"] if paths else []


def write_commands(task: Task) -> list[str]:
    """One command per changed file. Run in the task's working directory, they leave exactly the solution's bytes."""
    return [_write(path, task.files.get(path), data) for path, data in changes(task).items()]


def sed_command(path: str, before: bytes, after: bytes) -> str | None:
    """The shortest ``sed -i 's/OLD/NEW/'`` that turns ``before`` into ``after``, or ``None`` if one line is not enough.

    OLD consists of whole words and signs of the changed line, and the command changes no other line.
    """
    if b"\0" in before + after:
        return None
    try:
        old_lines, new_lines = before.decode().split("\n"), after.decode().split("\n")
    except UnicodeDecodeError:
        return None
    if len(old_lines) != len(new_lines):
        return None
    changed = [i for i, (old, new) in enumerate(zip(old_lines, new_lines, strict=True)) if old != new]
    if len(changed) != 1:
        return None
    for old, new in _spans(old_lines[changed[0]], new_lines[changed[0]]):
        if [line.replace(old, new, 1) for line in old_lines] == new_lines:
            pattern = re.sub(r"[\\.*^$\[/]", r"\\\g<0>", old)
            replacement = re.sub(r"[\\&/]", r"\\\g<0>", new)
            script = f"s/{pattern}/{replacement}/".replace("'", "'\\''")
            return f"sed -i '{script}' {_path(path)}"
    return None


def _spans(old: str, new: str) -> Iterator[tuple[str, str]]:
    """(OLD, NEW) pairs that turn one line into the other, shortest OLD first."""
    a, b = _TOKEN.findall(old), _TOKEN.findall(new)
    head = _common(a, b)
    tail = _common(a[head:][::-1], b[head:][::-1])
    spans = [(left, right) for left in range(head + 1) for right in range(tail + 1)]
    pairs = [("".join(a[left : len(a) - right]), "".join(b[left : len(b) - right])) for left, right in spans]
    yield from sorted((pair for pair in pairs if pair[0]), key=lambda pair: (len(pair[0]), pair))


def _common(a: list[str], b: list[str]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))


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
