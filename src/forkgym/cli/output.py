"""How commands speak: people read the terminal, machines read one JSON document on standard output."""

from __future__ import annotations

import json
import sys
import traceback
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from forkgym.agents.errors import AgentError, FailureBudgetError, InstallError, PolicyError
from forkgym.errors import ConfigError, ForkGymError, MissingExtraError
from forkgym.sandboxes.errors import ImageError, SandboxError, SandboxLimitError, SandboxUnavailableError
from forkgym.tasks.errors import BuildError, TaskFormatError, TaskNotFoundError
from forkgym.trainers.errors import CheckpointError, InterruptedTraining, NonFiniteError

# Results go to standard output, progress and errors to standard error, so that a pipe sees results only.
out = Console(highlight=False)
err = Console(stderr=True, highlight=False)

# The first class that fits says what to do next; the message itself says what happened.
ADVICE: tuple[tuple[type[BaseException], str], ...] = (
    (InterruptedTraining, "The same command goes on from there (`forkgym train` with --resume)."),
    (CheckpointError, "Name another checkpoint or run, or train anew with another `out`."),
    (NonFiniteError, "Nothing bad was saved. Lower the learning rate, then resume or start again."),
    (MissingExtraError, "Install it with the command above, then run this again; `forkgym doctor` lists all extras."),
    (TaskNotFoundError, "`forkgym tasks list` shows every task; a pattern such as 'swe/tiny/*' selects several."),
    (TaskFormatError, "Correct that file and run this again; `forkgym tasks verify` checks tasks."),
    (BuildError, "Name another repository, commit range or folder; docs/building-tasks.md says what can be built."),
    (ConfigError, "Nothing was started. Correct it and run again; --help lists what the command takes."),
    (SandboxUnavailableError, "`forkgym doctor` shows what is missing and the command that mends it."),
    (SandboxLimitError, "Free some room (`forkgym gc` removes what dead runs left) or ask for less, then run again."),
    (
        ImageError,
        "`forkgym images list` shows what is built; finished layers are kept, so building goes on from there.",
    ),
    (SandboxError, "Run it again; if it comes back, `forkgym doctor` shows what this machine lacks."),
    (FailureBudgetError, "What was finished is kept. Mend the cause named above and run the same command again."),
    (PolicyError, "The model failed, not the task. Check the model's name or free some memory, then run again."),
    (InstallError, "`forkgym harness list` shows what is installed."),
    (AgentError, "Run it again with --debug to see where it came from."),
    (ForkGymError, "Run it again with --debug to see where it came from."),
    (MemoryError, "Use a smaller --concurrency or model, or free some memory."),
    (OSError, "Check the path, its permissions and the free space."),
)
BUG = "This is a mistake in ForkGym. Run it again with --debug and report what it prints."


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    sys.stdout.write(json.dumps(value, indent=2, allow_nan=False, default=str) + "\n")


def print_table(table: Table) -> None:
    """A table as wide as the terminal, or whole: what reads a file or a pipe has no width."""
    console = out if out.is_terminal else Console(highlight=False, width=10_000)
    console.print(table)


def report_error(error: BaseException, *, debug: bool, as_json: bool) -> int:
    """Say in two lines what happened and what to do; returns the exit code: 2 wrong input, 130 interrupted, 1 other."""
    if debug:
        traceback.print_exception(error)
    known = isinstance(error, (ForkGymError, OSError, MemoryError))
    what = str(error) or type(error).__name__
    what = "\n       ".join(what.splitlines()) if known else f"{type(error).__name__}: {what}"
    advice = next((text for kind, text in ADVICE if isinstance(error, kind)), BUG)
    code = error.exit_code if isinstance(error, InterruptedTraining) else 2 if isinstance(error, ConfigError) else 1
    if as_json:
        print_json({"error": {"type": type(error).__name__, "message": what, "advice": advice, "exit_code": code}})
    err.print(Text.assemble(("error: ", "bold red"), what), soft_wrap=True)
    err.print(Text(f"       {advice}", "dim"), soft_wrap=True)
    return code


def clock(seconds: float) -> str:
    """A duration as ``m:ss``, with hours where there are any."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def percent(part: float | None) -> str:
    """A share as text; ``–`` where there is none."""
    return "–" if part is None else f"{part:.0%}"
