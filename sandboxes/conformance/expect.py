"""How a case is written: a function of a backend that raises ``Mismatch`` where the contract is not kept."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from forkgym.sandboxes.base import Backend, Sandbox


class Mismatch(AssertionError):
    """A backend does not keep the contract: what was looked at, what was found, what was due."""


@dataclass(frozen=True)
class Case:
    """One promise of the contract. ``doc`` says it in words; ``run`` raises if it is broken."""

    name: str
    doc: str
    run: Callable[[Backend], None]


def case(function: Callable[[Backend], None]) -> Case:
    """A case named after its function."""
    return Case(function.__name__, " ".join((function.__doc__ or "").split()), function)


def equal(what: str, found: object, due: object) -> None:
    """Raise ``Mismatch`` unless both are equal."""
    if found != due:
        raise Mismatch(f"{what}: found {_short(found)}, due {_short(due)}")


def true(what: str, condition: bool) -> None:
    """Raise ``Mismatch`` unless the condition holds."""
    if not condition:
        raise Mismatch(what)


def raises(what: str, kind: type[BaseException], action: Callable[[], object]) -> BaseException:
    """The error of this kind that ``action`` raises; ``Mismatch`` if it returns."""
    try:
        value = action()
    except kind as error:
        return error
    raise Mismatch(f"{what}: returned {_short(value)}, {kind.__name__} was due")


def output(box: Sandbox, command: str, **options: float) -> bytes:
    """Standard output of a command that must succeed."""
    result = box.exec(command, **options)  # pyright: ignore[reportArgumentType]
    if not result.ok:
        raise Mismatch(f"{_short(command)} ended with {result.exit_code}: {_short(result.stderr or result.stdout)}")
    return result.stdout


def running(box: Sandbox, word: str) -> int:
    """How many processes of the sandbox have ``word`` in their command line."""
    hidden = f"[{word[0]}]{re.escape(word[1:])}"  # so that the search does not find itself
    search = f"for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline; echo; done 2>/dev/null | grep -c -- '{hidden}'"
    return int(box.exec(search).stdout)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 300 else f"{text[:150]}...{text[-140:]}"
