"""Cases of isolation, limits and the end of a sandbox."""

from __future__ import annotations

import os
import socket
import tempfile
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from forkgym.sandboxes.base import Backend, Limits, Sandbox, SandboxSpec
from forkgym.sandboxes.conformance.expect import case, equal, output, raises, true
from forkgym.sandboxes.errors import SandboxDeadError


@case
def no_network(backend: Backend) -> None:
    """Nothing outside can be reached: no address, no service of the host, no metadata service; only loopback is up."""
    with socket.create_server(("127.0.0.1", 0)) as server, backend.create(SandboxSpec()) as box:
        port = server.getsockname()[1]
        for target in ("8.8.8.8/53", "169.254.169.254/80", f"127.0.0.1/{port}", "example.com/80"):
            result = box.exec(f"exec 3<>/dev/tcp/{target}", timeout=20)
            true(f"{target} was reached", result.exit_code != 0 and not result.timed_out)
        names = output(box, "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '")
        equal("interfaces", names, b"lo\n")
        equal("sockets of the host", output(box, "tail -n +2 /proc/net/unix | grep -c @ || true").strip(), b"0")


@case
def no_secrets(backend: Backend) -> None:
    """The trainer's variables, files and descriptors are not to be found inside."""
    token = uuid.uuid4().hex
    name = f"FORKGYM_TEST_{token[:8].upper()}"
    with tempfile.TemporaryDirectory(prefix=f"fg{token[:6]}") as folder:
        Path(folder, "secret").write_text(token)
        os.environ[name] = token
        try:
            with backend.create(SandboxSpec()) as box:
                search = f"env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline /proc/self/mountinfo {folder}/secret"
                everything = box.exec(f"{search} 2>/dev/null", max_output=None).stdout
                true("a secret variable is inside", token.encode() not in everything)
                equal("the host's files", output(box, f"grep -rls {token} /tmp /home /root /var/tmp /run; true"), b"")
                found = output(box, "ls /proc/self/fd").split()
                equal("descriptors of a command", len(found), 4)  # 0, 1, 2 and the directory that ls reads
                true("the host's processes are visible", len(output(box, "ls -d /proc/[0-9]*").split()) < 10)
        finally:
            del os.environ[name]


@case
def unprivileged(backend: Backend) -> None:
    """Commands have an ordinary user without capabilities, who cannot mount, unshare or harm the first process."""
    with backend.create(SandboxSpec()) as box:
        equal("name", output(box, "id -un"), b"agent\n")
        true("it runs as root", output(box, "id -u") != b"0\n")
        status = dict(line.split(":\t", 1) for line in output(box, "cat /proc/self/status").decode().splitlines())
        capabilities = {name: int(value, 16) for name, value in status.items() if name.startswith("Cap")}
        equal("capabilities", capabilities, dict.fromkeys(("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"), 0))
        equal("NoNewPrivs", status["NoNewPrivs"], "1")
        for command in (
            "unshare -U true",
            "mount -t tmpfs none /mnt",
            "umount /proc",
            "cat /proc/1/mem",
            "cat /proc/1/environ",
            "touch /dev/leak",
            "echo x >/proc/sys/kernel/hostname",
        ):
            true(f"{command!r} worked", box.exec(f"{command} 2>/dev/null").exit_code != 0)
        box.exec("kill -9 1; kill -TERM 1; kill -9 -1", timeout=20)
        equal("after kill 1", (box.alive, box.exec("echo alive").stdout), (True, b"alive\n"))


@case
def siblings_share_nothing(backend: Backend) -> None:
    """What one sandbox writes to shared-looking places is not seen in another."""
    with backend.create(SandboxSpec()) as one, backend.create(SandboxSpec()) as two:
        places = "/dev/shm /tmp /var/tmp /run/lock /dev /work"
        one.exec(f"for d in {places}; do echo leak >$d/leak; done")
        equal("leaks", output(two, f"for d in {places}; do ls $d/leak 2>/dev/null; done; true"), b"")
        equal("shared memory", output(one, "cat /dev/shm/leak"), b"leak\n")


@case
def memory_limit_reported_as_oom(backend: Backend) -> None:
    """A command over the memory limit dies, the result says why, and the sandbox goes on."""
    held = "memory" in backend.capabilities().limits
    with backend.create(SandboxSpec(limits=Limits(memory=96 << 20))) as box:
        result = box.exec("head -c 300000000 /dev/zero | tail -c 250000000 | wc -c; exit ${PIPESTATUS[1]}", timeout=60)
        true(f"a hog ended with {result.exit_code}", not result.ok and not result.timed_out)
        equal("oom_killed", result.oom_killed, held)
        equal("the next command", output(box, "echo alive"), b"alive\n")
        equal("its flag", box.exec("kill -9 $$").oom_killed, False)


@case
def pids_limit_holds(backend: Backend) -> None:
    """A fork bomb ends with its timeout, leaves nothing, and the sandbox goes on."""
    with backend.create(SandboxSpec(limits=Limits(pids=48))) as box:
        equal("a bomb", box.exec("bomb() { bomb | bomb; }; bomb", timeout=1).timed_out, True)
        equal("the next command", output(box, "echo alive", timeout=20), b"alive\n")
        started = box.exec("for i in {1..100}; do sleep 30 & done; wait", timeout=1)
        equal("more processes than allowed", started.timed_out, True)
        true("too many are left", len(output(box, "ls -d /proc/[0-9]*").split()) < 8)


@case
def close_is_idempotent_and_dead_raises(backend: Backend) -> None:
    """Closing twice is fine; every call on a closed sandbox raises ``SandboxDeadError``."""
    box = backend.create(SandboxSpec())
    shell = box.shell()
    equal("shell", shell.run("echo up").stdout, b"up\n")
    equal("alive", box.alive, True)
    box.close()
    box.close()
    equal("closed", box.alive, False)
    calls = {
        "exec": lambda: box.exec("true"),
        "shell": lambda: shell.run("true"),
        "read_file": lambda: box.read_file("/etc/passwd"),
        "write_file": lambda: box.write_file("x", b""),
        "list_dir": lambda: box.list_dir("/"),
        "fork": lambda: box.fork(),
        "snapshot": lambda: box.snapshot(),
        "usage": lambda: box.usage(),
    }
    for name, call in calls.items():
        raises(f"{name} on a closed sandbox", SandboxDeadError, call)


@case
def closing_ends_a_running_command(backend: Backend) -> None:
    """A command that runs while its sandbox is closed ends with ``SandboxDeadError``, not with a hang."""
    with backend.create(SandboxSpec()) as box, ThreadPoolExecutor(1) as pool:
        future = pool.submit(box.exec, "echo up >started; sleep 7010", timeout=60)
        output(box, "until [ -e started ]; do sleep 0.02; done", timeout=20)
        box.close()
        raises("the command", SandboxDeadError, future.result)


@case
def thread_safe(backend: Backend) -> None:
    """Threads may use one sandbox, and create and fork many, at once; each gets its own answers."""

    def talk(box: Sandbox, number: int) -> list[bytes]:
        shell = box.shell(f"shell{number}")
        box.write_file(f"file{number}", b"%d" % number)
        return [
            box.exec(["echo", str(number)]).stdout,
            shell.run(f"echo {number}").stdout,
            box.read_file(f"file{number}"),
        ]

    def live(number: int) -> list[bytes]:
        with backend.create(SandboxSpec()) as box:
            output(box, f"echo {number} >file")
            with box.fork()[0] as child:
                return [output(child, "cat file")]

    with backend.create(SandboxSpec()) as box, ThreadPoolExecutor(8) as pool:
        answers = [future.result() for future in [pool.submit(talk, box, number) for number in range(24)]]
        equal("answers", answers, [[b"%d\n" % n, b"%d\n" % n, b"%d" % n] for n in range(24)])
        equal("lives", list(pool.map(live, range(16))), [[b"%d\n" % n] for n in range(16)])
        others = pool.submit(box.exec, "sleep 1; echo slow", timeout=30)
        equal("a fork beside a command", [child.close() for child in box.fork()], [None])
        equal("the command", others.result().stdout, b"slow\n")


CASES = (
    no_network,
    no_secrets,
    unprivileged,
    siblings_share_nothing,
    memory_limit_reported_as_oom,
    pids_limit_holds,
    close_is_idempotent_and_dead_raises,
    closing_ends_a_running_command,
    thread_safe,
)
