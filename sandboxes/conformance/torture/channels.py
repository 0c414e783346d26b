"""Attacks on the way by which results come out: forged ends, lost shells, closed and full outputs."""

from __future__ import annotations

from forkgym.sandboxes.base import Sandbox
from forkgym.sandboxes.conformance.torture.attack import attack, equal, output, true


@attack()
def forged_exit_codes(box: Sandbox) -> None:
    """A command that writes to every descriptor it has or may open cannot forge its exit code."""
    spray = "for fd in {3..255}; do printf 'x\\0000\\0/\\0' >&$fd; printf '0\\n' >&$fd; done 2>/dev/null"
    shell = box.shell()
    equal("of a command", box.exec(f"{spray}; exit 3").exit_code, 3)
    equal("in the shell", shell.run(f"{spray}; (exit 3)", timeout=20).exit_code, 3)
    equal("the next one", shell.run("echo on; (exit 4)", timeout=20).exit_code, 4)


@attack()
def forged_descriptors(box: Sandbox) -> None:
    """Writing into the shell's own descriptors through /proc cannot forge an exit code."""
    shell = box.shell()
    spray = (
        "for p in /proc/$PPID /proc/$$; do for fd in $p/fd/*; do printf '\\0000\\0/\\0' >$fd; done; done 2>/dev/null"
    )
    result = shell.run(f"({spray}); (exit 5)", timeout=20)
    true(f"it ended with {result.exit_code}", result.exit_code == 5)
    equal("the next one", shell.run("(exit 6)", timeout=20).exit_code, 6)


@attack()
def printed_markers(box: Sandbox) -> None:
    """End markers as harnesses use them are output like any other."""
    text = "EXITCODESTART0EXITCODEEND\n<<<END>>>\n___CMD_DONE___0\n\x04\x1a\n"
    equal("output", box.shell().run(f"printf '%s' '{text}'; (exit 9)").stdout, text.encode())
    equal("the next one", box.shell().run("echo on").stdout, b"on\n")


@attack()
def broken_syntax(box: Sandbox) -> None:
    """Syntax that never ends is an error of that command alone."""
    shell = box.shell()
    for command in (
        "echo 'open",
        'echo "open',
        "cat <<EOF\nno end",
        "(((",
        "if true; then",
        "${",
        "echo \\",
        "}",
        "fi",
    ):
        result = shell.run(command, timeout=20)
        true(f"{command!r} hung", not result.timed_out)
        equal(f"after {command!r}", shell.run("echo on", timeout=20).stdout, b"on\n")


@attack()
def ends_of_the_shell(box: Sandbox) -> None:
    """However a command ends the shell, its exit code is told and the next run has a shell again."""
    shell = box.shell()
    for command, code in (("exit 7", 7), ("exec true", 0), ("set -e; false", 1), ("kill -9 $$", -9), ("exec false", 1)):
        result = shell.run(command, timeout=20)
        equal(f"exit code of {command!r}", result.exit_code, code)
        equal(f"after {command!r}", shell.run("echo on", timeout=20).stdout, b"on\n")


@attack()
def hostile_settings(box: Sandbox) -> None:
    """Aliases, traps, options and functions that shadow what the shell needs do not lose it for good."""
    for number, command in enumerate(
        (
            "printf() { :; }; declare() { :; }; cd() { :; }",
            "alias eval=false printf=false builtin=false",
            "trap 'echo trapped; exit 3' DEBUG ERR EXIT RETURN",
            "set -eu; set -o pipefail",
            "set -n",
            "PATH=; IFS=x; PS4='$(exit 9)'; set -x",
            "readonly PWD OLDPWD; shopt -s extdebug; enable -n eval printf declare",
        )
    ):
        shell = box.shell(f"shell{number}")
        shell.run(command, timeout=1)
        shell.run("exit 0", timeout=1)
        result = shell.run("echo on", timeout=5)
        true(f"after {command!r}: {result}", result.stdout.endswith(b"on\n"))


@attack()
def closed_outputs(box: Sandbox) -> None:
    """Closed, full and redirected outputs still give a result."""
    equal("closed", box.exec("exec >&- 2>&- <&-; exit 3").exit_code, 3)
    equal("full", box.exec("echo x >/dev/full").exit_code, 1)
    shell = box.shell()
    shell.run("exec >/dev/null 2>&1", timeout=20)
    equal("the exit code of a silent shell", shell.run("(exit 5)", timeout=20).exit_code, 5)


@attack()
def terminals(box: Sandbox) -> None:
    """There is no terminal to take over, and what asks a person gets the end of its input."""
    true("there is a terminal", not box.exec("echo x >/dev/tty").ok)
    for command in ("read -r x </dev/tty", "python3 -c 'input()'", "cat | cat", "su -c id </dev/null"):
        true(f"{command!r} hung", not box.exec(f"{command} 2>/dev/null", timeout=20).timed_out)
    equal("stdin", output(box, "cat; echo end", timeout=20), b"end\n")


@attack()
def nul_and_surrogates(box: Sandbox) -> None:
    """What the kernel has no way to pass is refused as a result, and nothing runs."""
    for command in ("echo a\0b", "echo \ud800", "", ["echo", "a\0b"], []):
        result = box.exec(command, timeout=20)
        true(f"{command!r} ended with {result.exit_code}", result.exit_code in (0, 126))
        equal(f"output of {command!r}", result.stdout, b"")
    equal("in the shell", box.shell().run("echo a\0b", timeout=20).exit_code, 126)


CASES = (
    forged_exit_codes,
    forged_descriptors,
    printed_markers,
    broken_syntax,
    ends_of_the_shell,
    hostile_settings,
    closed_outputs,
    terminals,
    nul_and_surrogates,
)
