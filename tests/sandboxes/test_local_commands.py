"""One-shot commands of the local backend: deadlines, survivors, output and what a command can do to its sandbox."""

import os
import resource
import signal
import threading
import time
from typing import Any

import pytest

from forkgym.errors import ConfigError
from forkgym.sandboxes import create
from forkgym.sandboxes.base import SandboxSpec
from forkgym.sandboxes.errors import SandboxDeadError, SandboxTimeoutError
from forkgym.sandboxes.local.backend import LocalBackend
from forkgym.sandboxes.owner import commands


@pytest.fixture(scope="module")
def box():
    with create("local") as sandbox:
        yield sandbox


def processes(box):
    """The command lines of all processes but the first and the one that looks."""
    return sorted(box.exec("ps -eo args --no-headers").stdout.decode().splitlines())[:-2]


def survivors(box, word):
    return box.exec(["pgrep", "-fc", word]).stdout.strip()


def test_a_command_that_ignores_signals_is_gone_at_its_deadline(box):
    result = box.exec("trap '' TERM INT HUP; while :; do sleep 1; done", timeout=0.5)
    assert result.timed_out
    assert result.exit_code == -9
    assert 0.5 <= result.duration < 5
    assert survivors(box, "trap") == b"0"


def test_nobody_survives_a_deadline_by_leaving_session_group_and_parent(box):
    script = "(setsid sh -c 'sh -c \"exec sleep 7002\" & sleep 7003' &) ; setsid -f sleep 7004; sleep 7005"
    assert box.exec(script, timeout=0.5).timed_out
    assert survivors(box, "sleep 700") == b"0"


def test_a_deadline_spares_background_children_of_earlier_commands(box):
    assert box.exec("sleep 7100 & echo up", timeout=5).stdout == b"up\n"
    time.sleep(0.05)
    assert box.exec("sleep 7101", timeout=0.3).timed_out
    assert survivors(box, "sleep 710") == b"1"
    box.exec("pkill -f 'sleep 7100'")


def test_a_deadline_spares_commands_that_run_at_the_same_time(box):
    results = []
    other = threading.Thread(target=lambda: results.append(box.exec("sleep 1.5; echo done", timeout=20)))
    other.start()
    assert box.exec("sleep 7200", timeout=0.3).timed_out
    other.join()
    assert results[0].stdout == b"done\n"


def test_a_command_whose_deadline_passes_during_a_freeze_never_starts(box):
    box.ask({"op": "quiesce", "idle": [], "patience": 1.0})
    try:
        result = box.exec("touch late; sleep 60", timeout=0.05)
    finally:
        box.ask({"op": "resume"})
    assert (result.timed_out, result.exit_code) == (True, -9)
    assert "late" not in [entry.name for entry in box.list_dir(".")]  # answered after what waited for the end


def test_a_kill_that_is_not_answered_is_not_waited_for_twice(box):
    asked = []

    def kill():
        asked.append("kill")
        raise SandboxTimeoutError("no answer")

    message = {"env": {"PATH": "/usr/bin"}, "cwd": "/"}
    options: dict[str, Any] = {"timeout": 0.05, "message": message, "stdin": None, "max_output": None}
    with pytest.raises(SandboxTimeoutError, match="no answer"):
        commands.run(box, "mine", ["sleep", "0.5"], start=box.request, kill=kill, **options)
    assert asked == ["kill"]


def test_orphans_leave_no_zombies(box):
    box.exec("for i in $(seq 200); do (true &) ; done; sleep 0.2")
    assert box.exec("ps -eo stat --no-headers | grep -c Z").stdout == b"0\n"


def test_signals_do_not_reach_the_first_process(box):
    assert box.exec("kill -9 1; kill -TERM 1; kill -9 -1; echo on").exit_code in (0, -9)
    assert box.alive
    assert box.exec("echo on").stdout == b"on\n"


def test_output_keeps_head_and_tail_and_counts_all(box):
    result = box.exec("seq 100000", max_output=1000)
    whole = "".join(f"{n}\n" for n in range(1, 100001)).encode()
    assert result.stdout == whole[:500] + whole[-500:]
    assert result.truncated
    assert result.total_bytes == len(whole) == 588895


def test_no_bound_keeps_every_byte(box):
    result = box.exec("head -c 3000000 /dev/zero", max_output=None)
    assert result.stdout == bytes(3_000_000)
    assert not result.truncated


def test_a_flood_does_not_grow_this_process(box):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = box.exec("yes & yes >&2", timeout=1, max_output=100_000)
    assert result.timed_out
    assert len(result.stdout) == len(result.stderr) == 100_000
    assert result.total_bytes > 1_000_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000  # KiB


def test_closed_and_full_outputs_still_give_a_result(box):
    assert box.exec("exec >&- 2>&-; exit 3").exit_code == 3
    assert box.exec("echo x > /dev/full").exit_code == 1


def test_output_can_be_opened_by_its_name(box):
    result = box.exec("echo out > /dev/stdout; echo err > /dev/stderr; cat /dev/stdin", stdin=b"in")
    assert (result.stdout, result.stderr) == (b"out\nin", b"err\n")


def test_what_cannot_start_is_a_result_like_that_of_a_shell(box):
    assert box.exec(["no-such-program"]).exit_code == 127
    assert b"no-such-program" in box.exec(["no-such-program"]).stderr
    assert box.exec(["/etc/passwd"]).exit_code == 126
    assert box.exec(["echo", "a\0b"]).exit_code == 126
    assert box.exec([]).exit_code == 126
    assert box.exec("echo \ud800").exit_code == 126
    assert box.exec(["true"], cwd="/no/such/place").exit_code == 127
    assert box.exec(["echo", "x" * 200_000]).exit_code == 126  # the kernel's limit for one argument


def test_a_long_command_needs_no_argument(box):
    assert box.exec("echo " + "x" * 500_000 + " | wc -c").stdout == b"500001\n"


def test_nonsense_timeouts_are_refused(box):
    for timeout in (0, -1, float("nan"), 10**400, None, "3"):
        with pytest.raises(ConfigError, match="timeout"):
            box.exec("true", timeout=timeout)


def test_a_command_sees_no_more_descriptors_than_its_own(box):
    assert box.exec("ls /proc/self/fd").stdout.split() == [b"0", b"1", b"2", b"3"]


def test_root_inside_may_change_the_system_and_is_bounded_like_others():
    with create("local") as box:
        made = "echo '#!/bin/sh\necho ok' > /usr/local/bin/newtool; chmod +x /usr/local/bin/newtool; rm /etc/issue"
        assert box.exec(made, user="root").ok
        assert box.exec("newtool; ls /etc/issue").stdout == b"ok\n"
        assert box.exec("setsid -f sleep 7301; sleep 7302", user="root", timeout=0.5).timed_out
        assert survivors(box, "sleep 730") == b"0"
        assert box.exec("mount -t tmpfs none /mnt", user="root").exit_code != 0
        with pytest.raises(ConfigError, match="user is 'nobody'"):
            box.exec("true", user="nobody")


def test_a_sandbox_for_root_runs_its_commands_as_root():
    with create("local", user="root", workdir="/srv/app") as box:
        assert box.exec("id -u; pwd; echo $HOME; touch /etc/mine && echo yes").stdout == b"0\n/srv/app\n/root\nyes\n"


def test_after_the_first_process_died_every_call_says_so():
    box = LocalBackend().create(SandboxSpec())
    shell = box.shell()
    shell.run("true")
    os.kill(box._pid, signal.SIGKILL)
    while box.alive:
        time.sleep(0.01)
    for call in (lambda: box.exec("true"), lambda: shell.run("true"), lambda: box.read_file("/etc/passwd"), box.fork):
        with pytest.raises(SandboxDeadError):
            call()
    assert not box.alive
    box.close()
    box.close()


def test_a_full_process_table_is_told_and_passes():
    with create("local", limits={"pids": 20}) as box:
        shell = box.shell()
        bomb = "for i in $(seq 40); do sleep 9 & done; sleep 9"
        result = box.exec(bomb, timeout=1)
        assert b"Resource temporarily unavailable" in result.stderr
        assert shell.run("echo on").stdout == b"on\n"
        assert box.exec("ps -e --no-headers | wc -l").stdout.strip() in (b"4", b"5")


def test_a_process_over_the_memory_limit_is_told_as_such():
    with create("local", limits={"memory": "128M"}) as box:
        result = box.exec("python3 -c 'x = bytearray(10**9)'")
        assert result.oom_killed or b"MemoryError" in result.stderr
        assert box.shell().run("python3 -c 'x = bytearray(10**9)'").exit_code != 0
        assert box.exec("echo on").stdout == b"on\n"


def test_files_that_fill_the_memory_kill_neither_the_sandbox_nor_what_removes_them():
    with create("local", limits={"memory": "64M"}) as box:
        shell = box.shell()
        for user in (None, "root"):
            full = box.exec("head -c 200M /dev/zero > big", user=user)
            assert full.oom_killed or full.ok  # it fits where the state lies on a disk
            assert box.exec("echo on", user=user).stdout == b"on\n"
            assert box.exec("rm -f big; ls", user=user).stdout == b""
        assert box.alive
        assert shell.run("echo on").stdout == b"on\n"
        assert box.exec("sleep 0.1; cut -d: -f2- /proc/self/cgroup | grep -v ':/$'").stdout == b""


def test_directories_can_be_made_at_the_top_but_none_taken_away(box):
    assert box.exec("mkdir /app && echo 1 > /app/a && cat /app/a").stdout == b"1\n"
    result = box.exec("mv /usr /usr2; rmdir /srv; rm -rf /etc/passwd; ls -d /usr /srv /etc/passwd")
    # Rootless, one id of the host serves all ids inside, so what lies at the top is the agent's own.
    rootless = LocalBackend().capabilities().tier == "rootless"
    assert result.stdout == (b"/usr\n" if rootless else b"/etc/passwd\n/srv\n/usr\n")
    (child,) = box.fork()
    with child:
        assert child.exec("cat /app/a && mkdir /data").ok
