"""How an attack is written: a function of a sandbox, after which the sandbox must still do its work."""

from __future__ import annotations

from collections.abc import Callable

from forkgym.sandboxes.base import Backend, Limits, Sandbox, SandboxSpec
from forkgym.sandboxes.conformance.expect import Case, Mismatch, case, equal, output, true

MB = 1 << 20


def attack(limits: Limits | None = None) -> Callable[[Callable[[Sandbox], None]], Case]:
    """A case from a function that attacks a sandbox with these limits."""

    def decorate(function: Callable[[Sandbox], None]) -> Case:
        def run(backend: Backend) -> None:
            with backend.create(SandboxSpec(limits=limits or Limits())) as box:
                function(box)
                usable(box)

        run.__name__, run.__doc__ = function.__name__, function.__doc__
        return case(run)

    return decorate


def usable(box: Sandbox) -> None:
    """Raise ``Mismatch`` unless commands, the shell and files still work."""
    true("the sandbox died", box.alive)
    equal("a command afterwards", box.exec("echo $((6 * 7))", timeout=20).stdout, b"42\n")
    equal("the shell afterwards", box.shell("afterwards").run("echo on", timeout=20).stdout, b"on\n")
    box.write_file("/tmp/afterwards", b"kept")
    equal("a file afterwards", box.read_file("/tmp/afterwards"), b"kept")


def alone(box: Sandbox) -> None:
    """Raise ``Mismatch`` if processes other than the first are left, idle shells aside."""
    listing = "for p in /proc/[0-9]*; do [ $p = /proc/$$ ] || tr '\\0' ' ' <$p/cmdline; echo; done 2>/dev/null"
    lines = [line for line in box.exec(listing, timeout=20).stdout.decode(errors="replace").splitlines() if line]
    true(f"left over: {lines}", len(lines) <= 3)  # the first process, and what may help it


def python(box: Sandbox, program: str, *arguments: str, timeout: float = 20) -> bytes:
    """Standard output of a Python program that must succeed inside."""
    result = box.exec(["python3", "-c", program, *arguments], timeout=timeout)
    if not result.ok:
        raise Mismatch(f"the probe ended with {result.exit_code}: {result.stderr[-300:]!r}")
    return result.stdout


def refused(box: Sandbox, *commands: str) -> None:
    """Raise ``Mismatch`` if one of these commands succeeds or hangs."""
    for command in commands:
        result = box.exec(command, timeout=20)
        true(f"{command!r} worked", result.exit_code != 0)
        true(f"{command!r} hung", not result.timed_out)


__all__ = ["MB", "alone", "attack", "equal", "output", "python", "refused", "true", "usable"]
