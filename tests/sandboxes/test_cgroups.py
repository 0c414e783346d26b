"""Version 1 and 2 are checked by their files; what the kernel does is checked wherever this user may make groups."""

import os
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from forkgym.sandboxes.base import Limits, Usage
from forkgym.sandboxes.local import cgroups
from forkgym.sandboxes.local.cgroups import Group, Home

LIMITS = Limits(memory=64 << 20, pids=12, cpu=0.5)


@pytest.mark.parametrize(
    ("controller", "version", "files"),
    [
        ("memory", 2, [("memory.max", "67108864", True), ("memory.swap.max", "0", False)]),
        (
            "memory",
            1,
            [("memory.limit_in_bytes", "67108864", True), ("memory.memsw.limit_in_bytes", "67108864", False)],
        ),
        ("pids", 2, [("pids.max", "12", True)]),
        ("pids", 1, [("pids.max", "12", True)]),
        ("cpu", 2, [("cpu.max", "50000 100000", True)]),
        ("cpu", 1, [("cpu.cfs_period_us", "100000", True), ("cpu.cfs_quota_us", "50000", True)]),
        ("cpuacct", 1, []),
    ],
)
def test_files_and_values_of_each_dialect(controller, version, files):
    assert cgroups.settings(controller, version, LIMITS) == files
    assert cgroups.settings(controller, version, Limits(memory=None, pids=None, cpu=None)) == []


def test_mounts_are_judged_by_their_contents(tmp_path):
    (tmp_path / "unified").mkdir()
    (tmp_path / "unified" / "cgroup.controllers").write_text("hugetlb\n")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    table = f"""proc /proc proc rw 0 0
cgroup /v1/cpu,cpuacct cgroup rw,relatime,cpu,cpuacct 0 0
cgroup /v1/systemd cgroup rw,name=systemd 0 0
cgroup2 {tmp_path}/unified cgroup2 rw 0 0
cgroup2 {tmp_path}/full cgroup2 rw 0 0
"""
    assert list(cgroups._mounts(table)) == [
        (Path("/v1/cpu,cpuacct"), 1, ["cpu", "cpuacct"]),
        (Path("/v1/systemd"), 1, []),
        (tmp_path / "unified", 2, []),
        (tmp_path / "full", 2, ["cpu", "memory", "pids"]),
    ]


def test_candidates_go_from_the_mount_point_down_to_our_own_group():
    mount = Path("/sys/fs/cgroup")
    own = cgroups._own_groups("4:cpu,cpuacct:/a\n0::/user.slice/run.scope\n")
    assert own == {"cpu": "/a", "cpuacct": "/a", "": "/user.slice/run.scope"}
    assert cgroups._from_top(mount, own[""]) == [mount, mount / "user.slice", mount / "user.slice" / "run.scope"]
    assert cgroups._from_top(mount, "/") == [mount]


def test_a_delegated_directory_of_version_2_is_prepared(tmp_path):
    for folder in (tmp_path, tmp_path / "forkgym"):
        folder.mkdir(exist_ok=True)
        (folder / "cgroup.subtree_control").write_text("")
        (folder / "cgroup.procs").write_text("")
    # A plain file keeps only the last word written; the kernel's file would keep all.
    assert cgroups._prepare(tmp_path, 2, ["pids"]) == []
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+pids"
    (tmp_path / "forkgym" / "cgroup.subtree_control").write_text("memory pids")
    assert cgroups._prepare(tmp_path, 1, ["memory", "cpu"]) == ["memory", "cpu"]


def test_counters_of_version_2(tmp_path):
    group = Group("box", dict.fromkeys(("memory", "pids", "cpu"), Home(tmp_path, 2)))
    (tmp_path / "box").mkdir()
    (tmp_path / "box" / "memory.events").write_text("low 0\nhigh 0\nmax 9\noom 3\noom_kill 2\noom_group_kill 0\n")
    (tmp_path / "box" / "memory.peak").write_text("1048576\n")
    (tmp_path / "box" / "pids.current").write_text("7\n")
    (tmp_path / "box" / "cpu.stat").write_text("usage_usec 1500000\nuser_usec 1\nsystem_usec 2\n")
    assert group.oom_kills() == 2
    assert group.usage() == Usage(cpu_seconds=1.5, peak_memory=1048576, pids=7)
    assert group.join_files == [str(tmp_path / "box" / "cgroup.procs")]


def test_what_cannot_be_measured_is_none(tmp_path):
    assert Group("box", {"memory": Home(tmp_path, 2)}).usage() == Usage()
    assert Group("box", {}).oom_kills() == 0


def run_in(group, code):
    """Start python in the group and let it go once it has joined; returns its exit code."""
    with subprocess.Popen(
        [sys.executable, "-c", f"input()\n{code}"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        for file in group.join_files:
            Path(file).write_text(str(process.pid))
        process.communicate(b"\n")
    return process.returncode


def test_the_kernel_holds_memory_and_processes():
    group = Group.create("test-hold", LIMITS)
    if group is None:
        homes, problem = cgroups.find_homes()
        assert homes == {}
        assert "uid" in problem or "no cgroup" in problem
        return
    try:
        assert group.oom_kills() == 0
        assert run_in(group, "bytearray(256 << 20)") == -signal.SIGKILL
        assert group.oom_kills() == 1
        forks = "import os, time\nfor _ in range(30):\n if os.fork() == 0: time.sleep(5); os._exit(0)"
        assert run_in(group, forks) == 1  # BlockingIOError
        usage = group.usage()
        assert usage.pids is not None
        assert usage.peak_memory is not None
        assert usage.cpu_seconds is not None
        assert 1 <= usage.pids <= 12
        assert 16 << 20 <= usage.peak_memory <= 64 << 20
        assert usage.cpu_seconds > 0
    finally:
        group.close()  # children of the fork loop still sleep inside
    assert not any(Path(file).exists() for file in group.join_files)
    group.close()


OWNER = """
import sys
from forkgym.sandboxes.base import Limits
from forkgym.sandboxes.local.cgroups import Group
group = Group.create(sys.argv[1], Limits())
print(group.join_files[0] if group else "", flush=True)
sys.stdin.read()
"""


def test_groups_of_a_dead_owner_are_reaped_and_those_of_a_live_one_are_not():
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, "test-reap"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        file = Path(owner.stdout.readline().strip())
        ours = Group.create("test-mine", Limits())
        assert (ours is None) == (file == Path())
        cgroups.reap()
        assert file == Path() or file.exists()
        os.kill(owner.pid, signal.SIGKILL)
        os.waitid(os.P_PID, owner.pid, os.WEXITED | os.WNOWAIT)  # a zombie has no use for its group
        reaped = cgroups.reap()
        if ours is not None:
            assert reaped >= 1
            assert not file.exists()
            assert Path(ours.join_files[0]).exists()
            ours.close()


def test_every_given_limit_is_either_held_or_explained():
    for limits in (Limits(cpu=1.0, wall=9.0), Limits(memory=None, pids=None, disk=None, open_files=None)):
        held, missing = cgroups.describe(limits)
        given = {name for name, value in asdict(limits).items() if value is not None}
        assert set(held) | set(missing) == given
        assert not set(held) & set(missing)
        assert all(len(text) > 5 for text in (*held.values(), *missing.values()))


def test_a_thread_leaves_memory_and_processes_on_version_1_and_nothing_on_version_2(tmp_path):
    homes = {"memory": Home(tmp_path / "m", 1), "pids": Home(tmp_path / "p", 1), "cpu": Home(tmp_path / "c", 1)}
    assert Group("box", homes).leave_files == [str(tmp_path / "m/cgroup.procs"), str(tmp_path / "p/cgroup.procs")]
    assert Group("box", homes | {"memory": Home(tmp_path, 2)}).leave_files == []
    assert Group("box", {"pids": Home(tmp_path, 1)}).leave_files == []


@pytest.mark.parametrize(
    ("version", "file"), [(2, "memory.max"), (1, "memory.limit_in_bytes"), (1, "memory.memsw.limit_in_bytes")]
)
def test_files_that_fill_the_memory_leave_room_for_a_command(tmp_path, version, file):
    group = Group("box", {"memory": Home(tmp_path, version)})
    (tmp_path / "box").mkdir()
    for name in ("memory.max", "memory.swap.max", "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"):
        (tmp_path / "box" / name).write_text("")
    group._apply(Limits(memory=64 << 20))
    (tmp_path / "box" / "memory.stat").write_text(f"cache 1\nshmem {60 << 20}\nrss 2\n")
    group.make_room()
    assert (tmp_path / "box" / file).read_text().rstrip("\0") == str(76 << 20)
    (tmp_path / "box" / file).write_text("")
    (tmp_path / "box" / "memory.stat").write_text("cache 1\nshmem 0\nrss 2\n")
    group.make_room()
    assert (tmp_path / "box" / file).read_text() == str(64 << 20)
