"""Cases of the persistent shell."""

from __future__ import annotations

from forkgym.sandboxes.base import Backend, SandboxSpec
from forkgym.sandboxes.conformance.expect import case, equal, running, true


@case
def shell_keeps_cwd_env_functions(backend: Backend) -> None:
    """Directory, exported variables, functions and aliases survive from run to run, and shells are apart."""
    with backend.create(SandboxSpec(env={"GIVEN": "yes"})) as box:
        shell = box.shell()
        equal("start", shell.run('pwd; echo "$GIVEN"').stdout, b"/work\nyes\n")
        equal("set-up", shell.run("cd /tmp; export A='x  y'; f() { echo fn $1; }; alias hi='echo hello'").exit_code, 0)
        equal("later", shell.run('pwd; echo "$A"; f 2; hi').stdout, b"/tmp\nx  y\nfn 2\nhello\n")
        equal("same object", box.shell().run("pwd").stdout, b"/tmp\n")
        equal("another shell", box.shell("other").run('pwd; echo "[$A]"').stdout, b"/work\n[]\n")
        equal("restarts", shell.restarts, 0)


@case
def shell_runs_any_text(backend: Backend) -> None:
    """Here-documents, case, arithmetic, long scripts and syntax errors behave as in bash."""
    cases = {
        "cat <<'__E__'\n<a b=\"1\"/>\n__E__": b'<a b="1"/>\n',
        ": <<'EOF'\n$x `v` \"q\"\nEOF\necho after $((1+2))": b"after 3\n",
        "case x in x) echo y;; esac": b"y\n",
        "cat <<EOF\n$((40+2))\nEOF": b"42\n",
        "echo one # comment": b"one\n",
        "echo a\\\nb": b"ab\n",
        f": {'x' * 1_000_000}\necho end": b"end\n",
        "": b"",
        "echo out; echo err >&2; echo out": b"out\nerr\nout\n",
        "cat; read x; echo no input": b"no input\n",
        r"printf '\xff\0\n'": b"\xff\0\n",
    }
    with backend.create(SandboxSpec()) as box:
        shell = box.shell()
        for command, due in cases.items():
            result = shell.run(command, timeout=20)
            equal(command[:60], (result.stdout, result.exit_code, result.timed_out), (due, 0, False))
        for broken in ('echo "unbalanced', "if true; then", "cat <<", "echo )"):
            result = shell.run(broken, timeout=20)
            true(f"{broken!r} ended with {result.exit_code}", result.exit_code != 0 and not result.timed_out)
            equal(f"after {broken!r}", shell.run("echo fine", timeout=20).stdout, b"fine\n")


@case
def shell_exit_code_not_forgeable(backend: Backend) -> None:
    """Nothing a command prints, on whatever descriptor, ends it early or fakes its exit code."""
    forge = "for ((i = 3; i < 256; i++)); do { printf '0\\0' >&$i; printf '0\\n' >&$i; } 2>/dev/null; done; "
    with backend.create(SandboxSpec()) as box:
        shell = box.shell()
        equal("builtin on every descriptor", shell.run(forge + "false").exit_code, 1)
        equal("its next", shell.run("echo next; (exit 4)").stdout, b"next\n")
        result = shell.run(f"bash -c '{forge.replace(chr(39), chr(34))} exit 5'")
        equal("a program on every descriptor", result.exit_code, 5)
        result = shell.run("set; env; cat /proc/$$/environ; sleep 0.3; echo late; exit_code=0; false")
        equal("end of a command that shows all it knows", (result.stdout[-5:], result.exit_code), (b"late\n", 1))
        equal("the one after it", shell.run("echo next").stdout, b"next\n")
        equal("$? is kept apart", shell.run("(exit 3)").exit_code, 3)


@case
def shell_survives_exit_and_timeout(backend: Backend) -> None:
    """``exit``, ``exec``, ``set -e``, a kill or a timeout end a shell; the next run has its place and its exports."""
    with backend.create(SandboxSpec()) as box:
        shell = box.shell()
        shell.run("cd /tmp; export KEEP='a b'")
        equal("exit", shell.run("exit 3").exit_code, 3)
        equal("after exit", shell.run('pwd; echo "$KEEP"').stdout, b"/tmp\na b\n")
        true(f"restarts is {shell.restarts}", shell.restarts >= 1)
        for ending in ("exec true", "set -e; false", "kill -9 $$", "kill -9 -1"):
            shell.run(ending, timeout=20)
            equal(f"after {ending!r}", shell.run('pwd; echo "$KEEP"', timeout=20).stdout, b"/tmp\na b\n")
        result = shell.run("echo early; sleep 7006", timeout=0.5)
        equal("timeout", (result.timed_out, result.stdout), (True, b"early\n"))
        equal("after the timeout", (shell.run("pwd").stdout, running(box, "sleep 7006")), (b"/tmp\n", 0))
        true("a loop in the shell itself is cut", shell.run("while :; do :; done", timeout=0.5).timed_out)
        equal("after the loop", shell.run('pwd; echo "$KEEP"').stdout, b"/tmp\na b\n")


@case
def shell_background_and_lost_directory(backend: Backend) -> None:
    """A background job neither holds a run up nor ends with it; a deleted directory is no reason to die."""
    with backend.create(SandboxSpec()) as box:
        shell = box.shell()
        result = shell.run("sleep 7007 & echo up", timeout=20)
        equal("background", (result.timed_out, result.exit_code, result.stdout), (False, 0, b"up\n"))
        equal("the job", running(box, "sleep 7007"), 1)
        equal("it can be killed", shell.run("kill %1; wait; echo gone", timeout=20).stdout[-5:], b"gone\n")
        shell.run("mkdir -p /tmp/lost; cd /tmp/lost; rmdir /tmp/lost")
        equal("without a directory", shell.run("echo alive", timeout=20).stdout[-6:], b"alive\n")
        equal("and out of it", shell.run("cd /tmp; pwd", timeout=20).stdout, b"/tmp\n")


@case
def shell_output_capped(backend: Backend) -> None:
    """A shell's output is capped like that of a command."""
    with backend.create(SandboxSpec()) as box:
        result = box.shell().run("printf A; head -c 5000000 /dev/zero; printf Z", max_output=1000)
        equal("flags", (result.truncated, result.total_bytes, len(result.stdout)), (True, 5_000_002, 1000))
        equal("ends", (result.stdout[:1], result.stdout[-1:]), (b"A", b"Z"))


CASES = (
    shell_keeps_cwd_env_functions,
    shell_runs_any_text,
    shell_exit_code_not_forgeable,
    shell_survives_exit_and_timeout,
    shell_background_and_lost_directory,
    shell_output_capped,
)
