"""Limits that the local backend's warden holds, disk and wall time, and how disk is measured."""

import contextlib
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from forkgym.sandboxes import create
from forkgym.sandboxes.errors import SandboxDeadError
from forkgym.sandboxes.local import launcher, measuring
from forkgym.sandboxes.local.mounts import VOLUMES

MB = 1 << 20


def filler(count, size=2_000_000):
    """A command that writes files of ``size`` bytes and then waits to be found out."""
    return f"for i in {{1..{count}}}; do head -c {size} /dev/zero > f$i || exit 3; done; sleep 20"


def test_what_is_over_the_disk_limit_is_killed_and_told_and_can_be_removed():
    with create("local", limits={"disk": "16M"}) as box:
        shell = box.shell()
        shell.run("cd /tmp; export A=1")
        result = box.exec(filler(120), timeout=120)
        assert result.disk_full
        assert not result.oom_killed
        assert result.exit_code == -9
        assert shell.run("pwd; echo $A").stdout == b"/tmp\n1\n"
        kept = box.exec("ls")
        assert kept.ok
        assert not kept.disk_full
        assert box.exec("rm f*; ls").stdout == b""
        below = box.exec("head -c 8M /dev/zero > fits; sleep 0.5; ls")
        assert below.stdout == b"fits\n"
        assert not below.disk_full


def test_every_command_that_is_killed_for_the_disk_limit_is_told():
    with create("local", limits={"disk": "16M"}) as box, ThreadPoolExecutor(3) as pool:
        beside = [pool.submit(box.exec, "sleep 100", timeout=120) for _ in range(3)]
        assert box.exec(filler(120), timeout=120).disk_full
        for command in beside:
            assert (command.result().exit_code, command.result().disk_full) == (-9, True)


def test_names_count_even_if_files_are_empty():
    with create("local", limits={"disk": "4M"}) as box:
        assert box.exec("touch {1..20000}; sleep 20", timeout=120).disk_full
        assert box.exec("find . -delete; ls").stdout == b""


def test_what_is_written_while_a_neighbour_removes_as_much_counts_too(own_state):
    ballast = own_state / "ballast"
    ballast.write_bytes(bytes(64 << 20))
    with create("local", limits={"disk": "16M"}) as box:
        assert box.exec("head -c 1M /dev/zero > first; sleep 0.3").ok  # so that it has just been measured
        ballast.unlink()
        assert box.exec("head -c 24M /dev/zero > second; sleep 20", timeout=120).disk_full


def test_files_that_have_no_name_any_more_count_too():
    program = (
        "import os, time\nheld = []\nfor n in range(100):\n held.append(open('f', 'wb', buffering=0)); os.unlink('f')\n"
        " held[-1].write(bytes(2_000_000))\ntime.sleep(20)"
    )
    with create("local", limits={"disk": "16M", "memory": "1G"}) as box:
        result = box.exec(["python3", "-c", program], timeout=120)
        assert (result.disk_full, result.oom_killed) == (True, False)
        assert box.exec("ls").stdout == b""


def test_a_neighbour_below_its_limit_is_not_touched():
    with create("local", limits={"disk": "16M"}) as box, create("local", limits={"disk": "16M"}) as other:
        other.shell().run("kept=1; head -c 8M /dev/zero > fits")
        assert box.exec(filler(120), timeout=120).disk_full
        assert other.shell().run("echo $kept").stdout == b"1\n"
        assert other.shell().restarts == 0


def test_the_limit_counts_from_the_last_fork():
    with create("local", limits={"disk": "16M"}) as box:
        box.exec("head -c 10M /dev/zero > before")
        with box.fork()[0] as child:
            for each in (box, child):
                assert each.exec("head -c 10M /dev/zero > after; sleep 0.5; ls").stdout == b"after\nbefore\n"
            assert child.exec(filler(120), timeout=120).disk_full


def test_far_beyond_the_limit_the_sandbox_ends_and_says_why():
    def write(box, count):
        (layer,) = (box._disk._upper / volume for volume in VOLUMES if (box._disk._upper / volume / "work").is_dir())
        for number in range(count):
            (layer / f"big{number}").write_bytes(bytes(4 * MB))  # past the sandbox, as no command is quick enough
            box.list_dir("/")

    with (
        create("local", limits={"disk": "1M", "memory": "4G"}) as box,
        pytest.raises(SandboxDeadError, match="far beyond its limit disk=1048576"),
    ):
        write(box, 400)


def test_a_sandbox_ends_at_its_wall_limit_and_every_call_says_so():
    begin = time.monotonic()
    with create("local", limits={"wall": 1}) as box, create("local") as other:
        shell = box.shell()
        shell.run("true")
        for call in (
            lambda: box.exec("sleep 60"),
            lambda: box.exec("true"),
            lambda: shell.run("true"),
            lambda: box.read_file("/etc/passwd"),
            lambda: box.write_file("x", b""),
            lambda: box.list_dir("/"),
            box.fork,
            box.snapshot,
        ):
            with pytest.raises(SandboxDeadError, match="wall=1 seconds"):
                call()
        assert time.monotonic() - begin < 50
        assert not box.alive
        assert other.exec("echo on").stdout == b"on\n"


def test_a_sandbox_that_is_closed_before_needs_no_warden():
    with create("local", limits={"wall": 0.3}) as box:
        assert box.exec("echo on").stdout == b"on\n"
    time.sleep(0.5)
    with create("local") as box:
        assert box.exec("echo on").stdout == b"on\n"


def wardens():
    """The wardens of this process's zygote."""
    zygote = str(launcher.zygote()._process.pid)
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            name, _, rest = path.read_text().partition(" (")[2].rpartition(") ")
            if name == "warden" and rest.split()[1] == zygote:
                found.append(int(path.parent.name))
    return found


def test_without_its_warden_a_zygote_ends_and_the_next_one_holds_the_limits():
    with create("local") as box:
        (warden,) = wardens()
        os.kill(warden, signal.SIGKILL)
        while wardens():
            time.sleep(0.01)
        with pytest.raises(SandboxDeadError):
            create("local")
        with pytest.raises(SandboxDeadError):
            box.exec("sleep 60")
    with create("local", limits={"wall": 1}) as box, pytest.raises(SandboxDeadError, match="wall=1"):
        box.exec("sleep 60")


def test_a_tree_is_measured_by_inode_and_never_through_a_link(tmp_path):
    (tmp_path / "dir").mkdir()
    (tmp_path / "dir" / "file").write_bytes(bytes(1 << 20))
    os.link(tmp_path / "dir" / "file", tmp_path / "dir" / "same")
    (tmp_path / "dir" / "out").symlink_to("/usr")
    names = 3  # dir, file, out; "same" is the file
    found = measuring.named(str(tmp_path))
    assert (1 << 20) + names * 1024 <= found <= (1 << 20) + names * 1024 + 16384


def test_a_deep_tree_is_measured(tmp_path):
    deep = os.open(tmp_path, os.O_RDONLY)
    for _ in range(300):
        os.mkdir("d" * 50, dir_fd=deep)
        below = os.open("d" * 50, os.O_RDONLY, dir_fd=deep)
        os.close(deep)
        deep = below
    os.close(deep)
    assert measuring.named(str(tmp_path)) >= 300 * 1024
