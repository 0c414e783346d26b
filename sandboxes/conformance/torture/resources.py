"""Attacks on memory, disk, descriptors and output."""

from __future__ import annotations

import resource

from forkgym.sandboxes.base import Backend, Limits, Sandbox, SandboxSpec
from forkgym.sandboxes.conformance.expect import case
from forkgym.sandboxes.conformance.torture.attack import MB, attack, equal, output, python, true, usable
from forkgym.sandboxes.errors import SandboxDeadError

_SMALL = Limits(memory=96 * MB)
_HOG = "x = bytearray(900 << 20)"


def _hog_dies(box: Sandbox, command: str, **options: str) -> None:
    result = box.exec(command, timeout=60, **options)  # pyright: ignore[reportArgumentType]
    true(f"{command!r} ended with {result.exit_code}", not result.ok and not result.timed_out)


@attack(_SMALL)
def memory_bomb(box: Sandbox) -> None:
    """A process over the memory limit dies; the next one runs, again and again."""
    for _ in range(3):
        _hog_dies(box, f"exec python3 -c '{_HOG}'")


@attack(_SMALL)
def memory_bomb_of_many(box: Sandbox) -> None:
    """Many processes that are over the limit together do not take the sandbox along."""
    program = "import os, time\nfor _ in range(12): os.fork() == 0 and (bytearray(b'x') * (20 << 20), time.sleep(1))"
    box.exec(["python3", "-c", program], timeout=20)


@attack(_SMALL)
def memory_bomb_in_the_shell(box: Sandbox) -> None:
    """A shell whose own variables are over the limit is lost and reopened."""
    shell = box.shell()
    result = shell.run("x=x; while :; do x=$x$x; done", timeout=30)
    true(f"it ended with {result.exit_code}", result.exit_code != 0)
    equal("the shell", shell.run("echo on", timeout=20).stdout, b"on\n")


@attack(_SMALL)
def memory_bomb_of_root(box: Sandbox) -> None:
    """What runs as root inside is bounded as well, and its death is a result."""
    _hog_dies(box, f"python3 -c '{_HOG}'", user="root")


@attack(_SMALL)
def memory_filled_by_files(box: Sandbox) -> None:
    """Files that fill the memory, where the state lies in memory, can be removed by a command."""
    box.exec("for i in 1 2 3; do head -c 200000000 /dev/zero >big$i; done", timeout=60)
    output(box, "rm -f big*", timeout=20)
    equal("what is left", box.list_dir("/work"), [])


@attack(Limits(memory=256 * MB))
def shared_memory_bomb(box: Sandbox) -> None:
    """/dev/shm takes a bounded amount."""
    result = box.exec("head -c 900000000 /dev/zero >/dev/shm/big", timeout=60)
    true("900 MB went into /dev/shm", not result.ok)
    output(box, "rm -f /dev/shm/big")


@case
def memory_of_neighbours(backend: Backend) -> None:
    """A memory bomb in one sandbox does not touch another."""
    with backend.create(SandboxSpec(limits=_SMALL)) as one, backend.create(SandboxSpec(limits=_SMALL)) as two:
        two.shell().run("kept=1")
        _hog_dies(one, f"python3 -c '{_HOG}'")
        equal("the neighbour's shell", two.shell().run("echo $kept").stdout, b"1\n")
        equal("its restarts", two.shell().restarts, 0)
        usable(one)


@attack(Limits(disk=24 * MB))
def disk_filler(box: Sandbox) -> None:
    """Many files that are over the disk limit together are stopped, and can then be removed."""
    fill = "for i in {1..100}; do head -c 4000000 /dev/zero >f$i || exit 3; done; sleep 5"
    result = box.exec(fill, timeout=60)
    true(f"400 MB were written: {result.exit_code}", not result.ok)
    true(f"{_written(box)} bytes were written", _written(box) < 300_000_000)
    output(box, "rm -f f*")


def _written(box: Sandbox) -> int:
    return int(output(box, "du -sk . | cut -f1")) * 1024


@case
def disk_filler_that_goes_on(backend: Backend) -> None:
    """Command after command that fills the disk stays near the limit, or ends the sandbox and says so."""
    with backend.create(SandboxSpec(limits=Limits(disk=24 * MB))) as box:
        try:
            for number in range(8):
                box.exec(f"for i in {{1..30}}; do head -c 3000000 /dev/zero >f{number}-$i; done; sleep 1", timeout=30)
            true(f"{_written(box)} bytes were written", _written(box) < 500_000_000)
            output(box, "rm -f f*")
        except SandboxDeadError as error:
            true(f"the error does not name the limit: {error}", "disk" in str(error))
        else:
            usable(box)


@case
def one_file_beyond_the_disk(backend: Backend) -> None:
    """A file larger than the limit cannot be made, whichever call asks for it."""
    with backend.create(SandboxSpec(limits=Limits(disk=8 * MB))) as box:
        for command in ("truncate -s 1T f", "fallocate -l 1G f", "dd if=/dev/zero of=f bs=1M seek=999 count=1"):
            result = box.exec(f"{command} 2>/dev/null; s=$(stat -c %b f 2>/dev/null || echo 0); [ $s -le 16384 ]")
            true(f"{command!r} took more than 8 MB", result.ok)
            output(box, "rm -f f")
        usable(box)


@attack()
def hundred_thousand_files(box: Sandbox) -> None:
    """A tree of 100,000 files can be made, forked and left behind."""
    program = (
        "import os\nfor d in range(100):\n os.mkdir(f'd{d}')\n"
        " for f in range(1000): os.close(os.open(f'd{d}/f{f}', os.O_CREAT | os.O_WRONLY))"
    )
    python(box, program, timeout=120)
    with box.fork()[0] as child:
        equal("in the fork", output(child, "find . -type f | wc -l", timeout=60), b"100000\n")


@attack()
def descriptor_bomb(box: Sandbox) -> None:
    """A process opens no more files than allowed."""
    probe = (
        "import os\nopened = []\ntry:\n while len(opened) < 100000: opened.append(os.open('/dev/null', os.O_RDONLY))\n"
        "except OSError: pass\nprint(len(opened))"
    )
    true("100000 files were opened", int(python(box, probe)) <= 1024)


@attack()
def pipe_bomb(box: Sandbox) -> None:
    """Pipes, filled until no more can be had, end with their process."""
    program = (
        "import os\ntry:\n while True:\n  r, w = os.pipe(); os.set_blocking(w, False)\n"
        "  os.write(w, bytes(65536))\nexcept OSError: pass\nprint('full')"
    )
    equal("said", python(box, program), b"full\n")


@attack()
def output_flood(box: Sandbox) -> None:
    """Endless output on both streams meets the deadline; what is kept is bounded, and so is this process."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = box.exec("yes & yes >&2", timeout=1, max_output=100_000)
    equal("flags", (result.timed_out, result.truncated), (True, True))
    equal("kept", (len(result.stdout), len(result.stderr)), (100_000, 100_000))
    true("memory of the owner grew by 30 MB", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 30_000)


@attack()
def output_flood_in_the_shell(box: Sandbox) -> None:
    """The shell's output is bounded as well, and the shell can be used again."""
    shell = box.shell()
    result = shell.run("head -c 50000000 /dev/zero", timeout=60, max_output=1000)
    equal("kept and total", (len(result.stdout), result.total_bytes), (1000, 50_000_000))
    true("an endless one ended", shell.run("yes", timeout=0.7, max_output=1000).timed_out)
    equal("the shell", shell.run("echo on", timeout=20).stdout, b"on\n")


@attack()
def output_of_a_daemon(box: Sandbox) -> None:
    """A background child that floods an abandoned pipe neither blocks the sandbox nor fills a memory."""
    result = box.exec("(timeout 2 yes &) ; echo started", timeout=20, max_output=1000)
    equal("flag", result.timed_out, False)
    for _ in range(10):
        equal("commands beside it", output(box, "echo on", timeout=20), b"on\n")
    box.exec("pkill yes")


@attack()
def binary_output(box: Sandbox) -> None:
    """Every byte value, without a newline, comes back as written on both streams."""
    program = "import os\nfor fd in (1, 2): os.write(fd, bytes(range(256)) * 64)"
    result = box.exec(["python3", "-c", program])
    equal("streams", (result.stdout, result.stderr), (bytes(range(256)) * 64, bytes(range(256)) * 64))


@attack()
def huge_arguments(box: Sandbox) -> None:
    """A huge command, argument or variable is run or refused as a result, never a failure of the sandbox."""
    equal("a script of 4 MB", output(box, f": {'x' * 4_000_000}\necho end", timeout=30), b"end\n")
    equal("an argument of 4 MB", box.exec(["echo", "x" * 4_000_000]).exit_code, 126)
    equal("a variable of 4 MB", box.exec("true", env={"A": "x" * 4_000_000}).exit_code, 126)


CASES = (
    memory_bomb,
    memory_bomb_of_many,
    memory_bomb_in_the_shell,
    memory_bomb_of_root,
    memory_filled_by_files,
    shared_memory_bomb,
    memory_of_neighbours,
    disk_filler,
    disk_filler_that_goes_on,
    one_file_beyond_the_disk,
    hundred_thousand_files,
    descriptor_bomb,
    pipe_bomb,
    output_flood,
    output_flood_in_the_shell,
    output_of_a_daemon,
    binary_output,
    huge_arguments,
)
