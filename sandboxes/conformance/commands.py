"""Cases of ``exec``: exit codes, bytes, limits of time and output, standard input."""

from __future__ import annotations

import hashlib

from forkgym.sandboxes.base import Backend, SandboxSpec
from forkgym.sandboxes.conformance.expect import case, equal, output, running, true


@case
def exec_exit_code(backend: Backend) -> None:
    """A command's exit code is data, and death by signal N is -N."""
    with backend.create(SandboxSpec()) as box:
        equal("exit 7", box.exec("exit 7").exit_code, 7)
        equal("true", box.exec(["true"]).exit_code, 0)
        equal("ok of a failure", box.exec(["false"]).ok, False)
        equal("a shell that kills itself", box.exec("kill -9 $$").exit_code, -9)
        equal("an unknown program in text", box.exec("no-such-program").exit_code, 127)
        equal("an unknown program in a sequence", box.exec(["no-such-program"]).exit_code, 127)


@case
def exec_bytes_kept(backend: Backend) -> None:
    """Output is bytes: invalid UTF-8, NUL, escapes and carriage returns come back as written, each stream apart."""
    with backend.create(SandboxSpec()) as box:
        equal("invalid UTF-8", box.exec(r"printf '\xff\xfe\x80ok\n'").stdout, b"\xff\xfe\x80ok\n")
        equal("NUL", box.exec(r"printf 'a\0b\n'").stdout, b"a\0b\n")
        equal("escapes", box.exec(r"printf '\033[31mred\r50%%\r\n'").stdout, b"\x1b[31mred\r50%\r\n")
        result = box.exec("printf out; printf err >&2")
        equal("both streams", (result.stdout, result.stderr), (b"out", b"err"))


@case
def exec_output_cap_exact(backend: Backend) -> None:
    """Up to ``max_output`` bytes come back whole; beyond it head and tail, the flag, and the true count."""
    with backend.create(SandboxSpec()) as box:
        for size in (4095, 4096, 4097, 20_000):
            command = f"printf A; head -c {size - 2} /dev/zero | tr '\\0' x; printf Z"
            result = box.exec(command, max_output=4096)
            equal(f"total of {size}", result.total_bytes, size)
            equal(f"truncated at {size}", result.truncated, size > 4096)
            true(f"{len(result.stdout)} bytes kept of {size}", len(result.stdout) == min(size, 4096))
            equal(f"ends of {size}", (result.stdout[:1], result.stdout[-1:]), (b"A", b"Z"))
            equal(f"all of {size}", len(box.exec(command, max_output=None).stdout), size)
        flood = box.exec("head -c 30000000 /dev/zero; head -c 5000 /dev/zero >&2", max_output=1000)
        equal("total of a flood", flood.total_bytes, 30_005_000)
        equal("kept of a flood", (len(flood.stdout), len(flood.stderr)), (1000, 1000))


@case
def exec_timeout_kills_tree(backend: Backend) -> None:
    """After a timeout nothing that the command started is left, and what it had written is kept."""
    with backend.create(SandboxSpec()) as box:
        result = box.exec("echo early; (setsid sleep 7001 &); sh -c 'sleep 7001; true'", timeout=0.5)
        equal("flag and output", (result.timed_out, result.ok, result.stdout), (True, False, b"early\n"))
        equal("survivors", running(box, "sleep 7001"), 0)
        result = box.exec("trap '' TERM INT HUP; while :; do sleep 0.1; done # 7002", timeout=0.5)
        equal("a command that ignores signals", (result.timed_out, running(box, "7002")), (True, 0))
        equal("the next command", box.exec("echo alive").stdout, b"alive\n")


@case
def exec_background_child_does_not_hang(backend: Backend) -> None:
    """A call ends with its command, also when a child keeps the output open; the child goes on."""
    with backend.create(SandboxSpec()) as box:
        for number, command in enumerate(("sleep 700{} & echo up", "(sleep 700{} &); echo up"), start=3):
            result = box.exec(command.format(number), timeout=20)
            equal(command, (result.timed_out, result.exit_code, result.stdout), (False, 0, b"up\n"))
            equal("the child", running(box, f"sleep 700{number}"), 1)
        result = box.exec("(setsid sh -c 'sleep 7005; true' >/dev/null 2>&1 &)", timeout=20)
        equal("a daemon", (result.timed_out, result.stdout), (False, b""))


@case
def exec_reads_eof_stdin(backend: Backend) -> None:
    """Standard input is empty unless given."""
    with backend.create(SandboxSpec()) as box:
        equal("cat", output(box, "cat; echo done", timeout=20), b"done\n")
        equal("read", box.exec("read x", timeout=20).exit_code, 1)
        equal("given bytes", box.exec(["cat"], stdin=b"a\0\xff\n").stdout, b"a\0\xff\n")


@case
def exec_argv_not_interpreted(backend: Backend) -> None:
    """A sequence reaches the program as it is; text is one bash script, however long."""
    with backend.create(SandboxSpec()) as box:
        words = ["printf", "%s|", "a b", "$HOME", "*", "`id`", "", "é\n"]
        equal("words", box.exec(words).stdout, "a b|$HOME|*|`id`||é\n|".encode())
        equal("text", output(box, "x=3; [[ $x == 3 ]] && echo $((x * 2))"), b"6\n")
        long = f"echo start\n: {'x' * 1_000_000}\necho end"
        equal("a script of 1 MB", output(box, long), b"start\nend\n")


@case
def exec_cwd_and_env(backend: Backend) -> None:
    """Commands start in the working directory, with the spec's variables; a call can replace both."""
    with backend.create(SandboxSpec(workdir="/work/here", env={"A": "1", "B": "2"})) as box:
        equal("default", output(box, "pwd; echo $A $B"), b"/work/here\n1 2\n")
        result = box.exec('pwd; printf "%s" "$A|$B"', cwd="/tmp", env={"B": "x y\n$"})
        equal("replaced", result.stdout, b"/tmp\n1|x y\n$")
        equal("writable", box.exec("touch file && mkdir dir").exit_code, 0)


@case
def large_stdin(backend: Backend) -> None:
    """Standard input larger than any pipe or argument arrives whole; a command that ignores it is no error."""
    data = bytes(range(256)) * 8300
    with backend.create(SandboxSpec()) as box:
        found = box.exec("sha256sum", stdin=data).stdout.split()[0].decode()
        equal("sha256", found, hashlib.sha256(data).hexdigest())
        equal("there and back", box.exec("cat", stdin=data, max_output=None).stdout == data, True)
        equal("ignored", box.exec("exec <&-; echo fine", stdin=data, timeout=20).stdout, b"fine\n")


@case
def usage_grows(backend: Backend) -> None:
    """What can be measured is measured: no negative values, and CPU time rises with work."""
    with backend.create(SandboxSpec()) as box:
        before = box.usage()
        output(box, "for ((i = 0; i < 50000; i++)); do :; done")
        after = box.usage()
        if before.cpu_seconds is not None and after.cpu_seconds is not None:
            true(f"CPU {before.cpu_seconds} -> {after.cpu_seconds}", 0 <= before.cpu_seconds < after.cpu_seconds)
        values = (after.peak_memory, after.pids, after.disk_bytes)
        true(f"usage {after}", all(value is None or value >= 0 for value in values))


CASES = (
    exec_exit_code,
    exec_bytes_kept,
    exec_output_cap_exact,
    exec_timeout_kills_tree,
    exec_background_child_does_not_hang,
    exec_reads_eof_stdin,
    exec_argv_not_interpreted,
    exec_cwd_and_env,
    large_stdin,
    usage_grows,
)
