"""The reference solution of a task as a submission, also where the solution is a program."""

from __future__ import annotations

from collections.abc import Mapping

from forkgym.sandboxes.base import Sandbox
from forkgym.tasks import tree
from forkgym.tasks.base import SOLUTION, FileChange, Submission, Task
from forkgym.tasks.errors import GradingError
from forkgym.tasks.submission import capture, of_files
from forkgym.tasks.workspace import Bases

SOLVE_TIMEOUT = 600.0
_EMPTY = 'rm -rf -- "$0" && mkdir -p -- "$0" && chown "$1" "$0"'


def reference(task: Task, bases: Bases) -> Submission:
    """What the reference solution submits. A program runs in a clean sandbox, and what it changed is captured.

    A program that fails is a malformed submission that says so. Raises ``GradingError`` and ``SandboxError``.
    """
    if not task.solve:
        return of_files(task.oracle)
    with bases.box(task) as box:
        place(box, SOLUTION, {path: data for path, data in task.oracle.items() if data is not None})
        result = box.exec(task.solve, cwd=task.workdir, timeout=task.budget.seconds or SOLVE_TIMEOUT)
        if not result.ok:
            end = "ran out of time" if result.timed_out else f"ended with exit code {result.exit_code}"
            output = (result.stdout + result.stderr).decode(errors="replace").strip()[-1000:]
            return Submission({}, malformed=f"the reference solution {end}: {output}")
        with box.fork(1)[0] as quiet:
            return capture(quiet, task, bases.tree(task))


def place(box: Sandbox, directory: str, contents: Mapping[str, bytes]) -> None:
    """Put files into a new or emptied directory anywhere in the sandbox, owned by the sandbox's user.

    Scripts, known by their first two bytes, can be executed. Raises ``GradingError`` and ``SandboxError``.
    """
    made = box.exec(("/bin/sh", "-c", _EMPTY, directory, box.spec.user), cwd="/", user="root")
    if not made.ok:
        raise GradingError(f"cannot make {directory}: {made.stderr.decode(errors='replace').strip()[-500:]}")
    changes = {path: FileChange(data, 0o755 if data.startswith(b"#!") else 0o644) for path, data in contents.items()}
    tree.write(box, directory, changes)
