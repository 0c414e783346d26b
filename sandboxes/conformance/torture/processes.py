"""Attacks by processes: bombs, storms, signals, and leaving the tree that a deadline kills."""

from __future__ import annotations

import time

from forkgym.sandboxes.base import Backend, Limits, Sandbox, SandboxSpec
from forkgym.sandboxes.conformance.expect import case, running
from forkgym.sandboxes.conformance.torture.attack import alone, attack, equal, output, python, refused, true, usable

_FEW = Limits(pids=48)


@attack(_FEW)
def fork_bomb(box: Sandbox) -> None:
    """A fork bomb ends with its deadline and leaves no process."""
    true("the bomb ended by itself", box.exec("b() { b | b & }; b; sleep 60", timeout=0.7).timed_out)
    alone(box)


@attack(_FEW)
def fork_bomb_in_the_shell(box: Sandbox) -> None:
    """A fork bomb in the persistent shell ends with its deadline, and the shell is reopened."""
    shell = box.shell()
    true("the bomb ended by itself", shell.run("b() { b | b & }; b; sleep 60", timeout=0.7).timed_out)
    equal("the shell", shell.run("echo on", timeout=20).stdout, b"on\n")


@attack(_FEW)
def fork_bomb_of_daemons(box: Sandbox) -> None:
    """A bomb whose processes leave session, group and parent is found all the same."""
    bomb = "import os\nwhile True:\n try:\n  if os.fork() == 0: os.setsid()\n except OSError: pass"
    true("the bomb ended by itself", box.exec(["python3", "-c", bomb], timeout=0.7).timed_out)
    alone(box)


@attack(_FEW)
def thread_bomb(box: Sandbox) -> None:
    """Threads count as processes do: beyond the limit none starts."""
    bomb = (
        "import threading, time\nstarted = 0\ntry:\n for _ in range(500):\n"
        "  threading.Thread(target=time.sleep, args=(60,), daemon=True).start(); started += 1\n"
        "except RuntimeError: pass\nprint(started, flush=True)\nimport os; os._exit(0)"
    )
    true("500 threads started under a limit of 48", int(python(box, bomb)) < 48)


@case
def full_process_table(backend: Backend) -> None:
    """A process table that sleepers fill leaves files readable, calls that return, and forks that work."""
    program = (
        "import os, time\ntry:\n while True:\n  if os.fork() == 0: time.sleep(600); os._exit(0)\nexcept OSError: pass"
    )
    with backend.create(SandboxSpec(limits=Limits(pids=24))) as box:
        box.exec(["python3", "-c", program], timeout=20)
        equal("a file", box.read_file("/etc/passwd")[:4], b"root")
        equal("a command hangs", box.exec(["true"], timeout=20).timed_out, False)
        with box.fork()[0] as child:
            usable(child)


@attack()
def zombie_storm(box: Sandbox) -> None:
    """A thousand orphans that end at once leave no zombie."""
    output(box, "for i in {1..1000}; do (: &) ; done", timeout=60)
    count = "cat /proc/[0-9]*/stat 2>/dev/null | grep -c ') Z ' || true"
    deadline = time.monotonic() + 10
    while (left := output(box, count)) != b"0\n" and time.monotonic() < deadline:
        time.sleep(0.05)
    equal("zombies", left, b"0\n")


@attack()
def stubborn_zombies(box: Sandbox) -> None:
    """Zombies of a parent that never waits go with the parent."""
    parent = "import os, time\nfor _ in range(50):\n if os.fork() == 0: os._exit(0)\ntime.sleep(600)"
    true("it ended by itself", box.exec(["python3", "-c", parent], timeout=1).timed_out)
    equal("zombies", output(box, "cat /proc/[0-9]*/stat 2>/dev/null | grep -c ') Z ' || true"), b"0\n")


@attack()
def signals_to_the_first_process(box: Sandbox) -> None:
    """No signal from inside ends or stops the first process."""
    box.exec("for s in {1..64}; do kill -$s 1; done 2>/dev/null", timeout=20)
    box.exec("for s in {1..64}; do kill -$s -- -1; done 2>/dev/null", timeout=5)


@attack()
def kill_everything(box: Sandbox) -> None:
    """Killing all that one may ends one's own commands and shells, not the sandbox; a lost shell is reopened."""
    shell = box.shell()
    shell.run("x=1")
    box.exec("kill -9 -1", timeout=20)
    first = shell.run("echo on", timeout=20)  # it may find its bash dying
    true(f"neither run nor lost: {first}", first.stdout == b"on\n" or first.exit_code == -9)
    equal("the shell", shell.run("echo on", timeout=20).stdout, b"on\n")
    true("the loss was not counted", shell.restarts > 0)


@attack()
def stop_everything(box: Sandbox) -> None:
    """A command that stops itself and everybody else still meets its deadline."""
    true("it ended by itself", box.exec("kill -STOP -1; kill -STOP $$; sleep 60", timeout=1).timed_out)
    box.exec("kill -CONT -1", timeout=5)


@attack()
def ignored_signals(box: Sandbox) -> None:
    """Ignoring and blocking every signal does not outlive a deadline."""
    program = (
        "import signal, time\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())\nprint('in', flush=True)\ntime.sleep(600)"
    )
    result = box.exec(["python3", "-c", program], timeout=1)
    equal("flag and output", (result.timed_out, result.stdout), (True, b"in\n"))
    equal("survivors", running(box, "time.sleep(600)"), 0)


@attack()
def deep_daemon(box: Sandbox) -> None:
    """A process that forked, left its session and forked again, five times, does not outlive a deadline."""
    program = "import os, time\nfor _ in range(5):\n if os.fork(): os._exit(0)\n os.setsid()\ntime.sleep(8111)"
    result = box.exec(f'python3 -c "{program}" & sleep 60', timeout=1)
    true("it ended by itself", result.timed_out)
    equal("survivors", running(box, "sleep(8111)"), 0)


@attack()
def respawning_pair(box: Sandbox) -> None:
    """Two processes that restart each other are both gone after a deadline."""
    box.write_file(
        "pair", b"#!/bin/bash\n# 8222\nwhile :; do [ -e stop ] || { setsid ./pair & sleep 0.05; }; done\n", 0o755
    )
    true("it ended by itself", box.exec("./pair", timeout=1).timed_out)
    equal("survivors", running(box, "./pair"), 0)


@attack()
def background_outlives_and_is_killed_on_close(box: Sandbox) -> None:
    """A background child goes on after its call, and is in a fork's parent but not in the fork."""
    output(box, "(setsid sleep 8333 >/dev/null 2>&1 &)")
    with box.fork()[0] as child:
        equal("in the fork", running(child, "sleep 8333"), 0)
    equal("in the parent", running(box, "sleep 8333"), 1)


@attack()
def stopped_processes_and_a_fork(box: Sandbox) -> None:
    """Stopped processes and a blocked vfork do not hold a fork up."""
    output(box, "sleep 600 & kill -STOP $!; (sleep 600 <&- >&- 2>&-) & echo on")
    begin = time.monotonic()
    with box.fork()[0] as child:
        equal("the fork", output(child, "echo on"), b"on\n")
    true("the fork took over 10 s", time.monotonic() - begin < 10)


@attack()
def spinning_builtin(box: Sandbox) -> None:
    """A loop in the shell itself, without any process to kill, meets the deadline; the directory is kept."""
    shell = box.shell()
    shell.run("cd /tmp")
    result = shell.run("while :; do :; done", timeout=0.5)
    equal("flag", result.timed_out, True)
    equal("the directory", shell.run("pwd", timeout=20).stdout, b"/tmp\n")


@attack()
def rising_limits(box: Sandbox) -> None:
    """Nobody inside raises a hard limit or a priority."""
    refused(box, "ulimit -Hn 1000000", "ulimit -Hc unlimited", "nice -n -5 true | grep . || exit 1")
    status = python(
        box,
        "import os\ntry: os.setpriority(os.PRIO_PROCESS, 0, -5); print('raised')\nexcept OSError: print('held')",
    )
    equal("priority", status, b"held\n")


@attack()
def core_dumps(box: Sandbox) -> None:
    """A crash writes no core file."""
    output(box, "ulimit -c unlimited 2>/dev/null; (kill -SEGV $BASHPID); sleep 0.1; true")
    equal("files", [entry.name for entry in box.list_dir("/work")], [])


@attack()
def realtime_scheduling(box: Sandbox) -> None:
    """Real-time scheduling, which would starve the host, is refused."""
    probe = (
        "import os\nfor policy in (os.SCHED_FIFO, os.SCHED_RR):\n"
        " try: os.sched_setscheduler(0, policy, os.sched_param(50)); print('got', policy)\n except OSError: pass"
    )
    equal("granted", python(box, probe), b"")


CASES = (
    fork_bomb,
    fork_bomb_in_the_shell,
    fork_bomb_of_daemons,
    thread_bomb,
    full_process_table,
    zombie_storm,
    stubborn_zombies,
    signals_to_the_first_process,
    kill_everything,
    stop_everything,
    ignored_signals,
    deep_daemon,
    respawning_pair,
    background_outlives_and_is_killed_on_close,
    stopped_processes_and_a_fork,
    spinning_builtin,
    rising_limits,
    core_dumps,
    realtime_scheduling,
)
