"""Processes of a sandbox as its first process sees them: who is there, and killing so that nobody escapes."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import stat
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

_TICKS = os.sysconf("SC_CLK_TCK")
_DEATH_PATIENCE_MS = 10_000
_PATIENCE = 2.0  # seconds; a process in an uninterruptible wait dies when the wait ends


@dataclass(frozen=True)
class Process:
    """One line of the process table; ``start`` in clock ticks since boot."""

    pid: int
    parent: int
    state: str
    start: int


def now() -> float:
    """Seconds since boot, on the clock by which the kernel dates processes; the same in and outside of sandboxes."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def table() -> dict[int, Process]:
    """All living processes but the first, by id. Zombies are dead."""
    found: dict[int, Process] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit() or name == "1":
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                fields = file.read().rpartition(b") ")[2].split()
        except OSError:
            continue
        state = fields[0].decode()
        if state not in "ZX":
            found[int(name)] = Process(int(name), int(fields[1]), state, int(fields[19]))
    return found


def descendants(roots: Iterable[int], processes: dict[int, Process]) -> set[int]:
    """The roots and everything below them."""
    children: dict[int, list[int]] = {}
    for process in processes.values():
        children.setdefault(process.parent, []).append(process.pid)
    found: set[int] = set()
    waiting = list(roots)
    while waiting:
        pid = waiting.pop()
        if pid not in found:
            found.add(pid)
            waiting += children.get(pid, [])
    return found


def eliminate(since: float, keep: Iterable[int], reap: Callable[[], None]) -> int:
    """Kill every other process that started at or after ``since`` (as by ``now``) and is not below one of ``keep``.

    Working by elimination also finds those that left their session, group and parent. Repeats until none is left.
    Returns how many could not be killed in time, or not at all for lack of permission.
    """
    deadline, pause = time.monotonic() + _PATIENCE, 0.0005
    first, own = int(since * _TICKS), os.getpid()
    while True:
        reap()
        processes = table()
        spared = descendants(keep, processes)
        targets = [p.pid for p in processes.values() if p.start >= first and p.pid not in spared and p.pid != own]
        denied = 0
        if targets and len(targets) == len(processes) and os.getpid() == 1:
            with contextlib.suppress(OSError):
                os.kill(-1, signal.SIGKILL)  # all at one moment, so that none can start another meanwhile
        for pid in targets:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            except PermissionError:
                denied += 1
        if len(targets) == denied or time.monotonic() > deadline:
            return len(targets)
        time.sleep(pause)
        pause = min(2 * pause, 0.02)


def writers() -> list[int]:
    """The processes that have a file of the disk open for writing, as far as this user may look."""
    return [pid for pid in table() if any(map(_writes_to_disk, _descriptors(pid)))]


def _descriptors(pid: int) -> list[str]:
    try:
        return [f"/proc/{pid}/fd/{name}" for name in os.listdir(f"/proc/{pid}/fd")]
    except OSError:
        return []


def _writes_to_disk(descriptor: str) -> bool:
    try:
        # The mode of the link tells how the file was opened.
        return bool(os.lstat(descriptor).st_mode & stat.S_IWUSR) and stat.S_ISREG(os.stat(descriptor).st_mode)
    except OSError:
        return False


def eliminate_now() -> None:
    """Kill every process but the first and this one at one moment, as root inside; what starts later lives."""
    deadline, targets = time.monotonic() + _PATIENCE, table()
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)
    own = int(os.readlink("/proc/self"))
    while targets.keys() & table().keys() - {own} and time.monotonic() < deadline:
        time.sleep(0.001)


def stop_all(spare: Iterable[int], patience: float) -> list[int]:
    """Stop every running process but ``spare``; returns those stopped here, once none of them runs."""
    spared, stopped = set(spare), set[int]()  # spared also: those of root inside, which may not be stopped
    deadline = time.monotonic() + patience
    while True:
        running = [p.pid for p in table().values() if p.state not in "Tt" and p.pid not in spared]
        if not running or time.monotonic() > deadline:
            return sorted(stopped)
        for pid in running:
            try:
                os.kill(pid, signal.SIGSTOP)
                stopped.add(pid)
            except PermissionError:
                spared.add(pid)
            except ProcessLookupError:
                continue
        time.sleep(0.0005)


def await_end(pidfd: int) -> None:
    """Wait until a killed process is gone, at most 10 seconds, and close its descriptor."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    poll.poll(_DEATH_PATIENCE_MS)
    os.close(pidfd)


def resume(pids: Iterable[int]) -> None:
    """Let stopped processes go on."""
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGCONT)
