"""The command line that the trainers share: ``python -m forkgym.trainers.grpo --recipe FILE key=value ...``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn, Protocol, TypeVar

from forkgym.errors import ForkGymError, MissingExtraError
from forkgym.trainers.events import CheckpointSaved, EvalEnded, Event, OnEvent, RunEnded, RunStarted, StepEnded, Warned

R = TypeVar("R")
R_in = TypeVar("R_in", contravariant=True)


class Runner(Protocol[R_in]):
    """The ``run`` function of a trainer."""

    def __call__(self, recipe: R_in, *, resume: bool, on_event: OnEvent | None) -> Any: ...


def command(
    description: str,
    load: Callable[[str, Sequence[str]], R],
    run: Runner[R],
    arguments: Sequence[str] | None = None,
) -> int:
    """Read the command line, train, and return the exit code: 0, 2 for an error, 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", required=True, help="a .yaml file or the name of a bundled recipe")
    parser.add_argument("--resume", action="store_true", help="go on from the newest checkpoint in the recipe's 'out'")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="for example optimizer.lr=1e-5")
    options = parser.parse_args(arguments)
    try:
        run(load(options.recipe, options.overrides), resume=options.resume, on_event=say)
    except ForkGymError as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return int(getattr(error, "exit_code", 2))
    return 0


def without(error: ModuleNotFoundError, module: str) -> NoReturn:
    """Say what ``module`` lacks: one line and exit code 2 where it is the command, else ``MissingExtraError``."""
    message = f"training needs the package {error.name!r}: pip install 'forkgym[train]'"
    if module == "__main__":
        sys.stderr.write(f"MissingExtraError: {message}\n")
        raise SystemExit(2) from None
    raise MissingExtraError(message) from error


def say(event: Event) -> None:
    """One line on standard output for what matters."""
    line = _line(event)
    if line:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def _line(event: Event) -> str:
    match event:
        case RunStarted():
            begun = f", going on after step {event.step}" if event.step else ""
            return f"{event.algorithm}: {event.steps} steps into {event.out}{begun}\n{event.definition}"
        case StepEnded():
            return f"step {event.step}: {_numbers(event.metrics, 'reward', 'pass_rate', 'loss', 'grad_norm', 'lr')}"
        case Warned():
            return f"warning after step {event.step}: {event.message}"
        case EvalEnded():
            return f"held-out after step {event.step}: {_numbers(event.metrics, 'reward', 'pass_rate', 'scored')}"
        case CheckpointSaved():
            return f"saved {Path(event.path)}"
        case RunEnded():
            return f"ended after step {event.step} ({event.reason})"
        case _:
            return ""


def _numbers(metrics: Any, *names: str) -> str:
    return ", ".join(f"{name} {metrics[name]:.4g}" for name in names if name in metrics)
