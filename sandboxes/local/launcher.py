"""Starts the zygote of this process when it is first needed, again when it died."""

from __future__ import annotations

import atexit
import os
import select
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from forkgym.sandboxes.errors import SandboxUnavailableError
from forkgym.sandboxes.guest import wire
from forkgym.sandboxes.local import cleanup
from forkgym.sandboxes.owner.reply import PATIENCE
from forkgym.sandboxes.state import state_dir

_BOOT = Path(__file__).resolve().with_name("boot.py")
_CAP_SYS_ADMIN = 21
_ALL_IDS = ["0", "0", str(2**32 - 1)]  # the id map of the first user namespace


class Zygote:
    """A running zygote process."""

    def __init__(self, privileged: bool) -> None:
        self.privileged = privileged
        self.socket, theirs = wire.pair()
        mode = "root" if privileged else "rootless"
        self.root = state_dir()  # asked once: finding a fit directory takes a while
        devices = self.root / "dev"
        devices.mkdir(mode=0o700, exist_ok=True)
        interpreter = sys.executable or "python3"
        try:
            self._process = subprocess.Popen(
                [interpreter, "-I", "-S", str(_BOOT), str(theirs.fileno()), mode, str(devices)],
                pass_fds=[theirs.fileno()],
                env={},
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            self.socket.close()
            raise SandboxUnavailableError(f"cannot start {interpreter}: {error}") from error
        finally:
            theirs.close()
        self._await_start()

    def alive(self) -> bool:
        """False once the process has ended."""
        return self._process.poll() is None

    def stop(self) -> None:
        """End it, and all sandboxes with it."""
        self.socket.close()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def forget(self) -> None:
        """After a fork, in the child: let go of what belongs to the parent."""
        self.socket.close()
        self._process.returncode = 0

    def _await_start(self) -> None:
        poll = select.poll()
        poll.register(self.socket, select.POLLIN)
        received = wire.receive(self.socket) if poll.poll(PATIENCE * 1000) else None
        if received is not None and "error" not in received[0]:
            return
        self.stop()
        reason = received[0]["error"] if received else "it ended without a word"
        raise SandboxUnavailableError(f"the local sandbox cannot start: {reason}. {advice(self.privileged)}")


def advice(privileged: bool) -> str:
    """What a user can do on a machine that refuses namespaces or overlays."""
    hints = [] if privileged else list(_closed_settings())
    if _covered_proc():
        hints.append(
            "/proc is covered in part, as in a container, and then the kernel refuses a fresh one: start the container "
            "with --security-opt systempaths=unconfined"
        )
    if os.geteuid() == 0:
        what = "mount and clone" if privileged else "CAP_SYS_ADMIN"
        return "; ".join([*hints, f"in a container, allow {what} (docker run --privileged)"])
    return "; ".join([*hints, "run as root, or allow user namespaces"])


def _closed_settings() -> Iterator[str]:
    for name, wanted in (
        ("kernel.apparmor_restrict_unprivileged_userns", "0"),
        ("kernel.unprivileged_userns_clone", "1"),
        ("user.max_user_namespaces", "10000"),
    ):
        value = _sysctl(name)
        if value not in (None, wanted) and (name != "user.max_user_namespaces" or value == "0"):
            yield f"{name}={value}: an administrator may set it to {wanted} (sysctl -w {name}={wanted})"


def _covered_proc() -> bool:
    """True if something is mounted over a part of /proc; a namespace below that may not mount its own."""
    places = (line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines())
    return any(place.startswith("/proc/") and place != "/proc/sys/fs/binfmt_misc" for place in places)


def _sysctl(name: str) -> str | None:
    try:
        return Path("/proc/sys", name.replace(".", "/")).read_text().strip()
    except OSError:
        return None


def is_privileged() -> bool:
    """True for root that may mount and has ids to give away: not the only id of a user namespace."""
    if os.geteuid() != 0 or Path("/proc/self/uid_map").read_text().split() != _ALL_IDS:
        return False
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> _CAP_SYS_ADMIN & 1)
    return False


_lock = threading.Lock()
_zygote: Zygote | None = None
# What this process has running: closed at its end, and let go of in a forked child, where an inherited end of a socket
# would keep sandboxes alive after their owner's death.
owned: weakref.WeakSet[Any] = weakref.WeakSet()


def zygote() -> Zygote:
    """This process's zygote, started if need be."""
    global _zygote
    with _lock:
        if _zygote is None or not _zygote.alive():
            if _zygote is not None:
                _zygote.stop()
            _zygote = Zygote(is_privileged())
        return _zygote


def stop() -> None:
    """End this process's zygote, if it runs."""
    global _zygote
    with _lock:
        if _zygote is not None:
            _zygote.stop()
            _zygote = None


@atexit.register
def _close_all() -> None:
    for thing in list(owned):
        thing.close()
    cleanup.wait()
    stop()


def _after_fork_in_child() -> None:
    global _lock, _zygote
    _lock = threading.Lock()
    if _zygote is not None:
        _zygote.forget()
        _zygote = None
    for thing in list(owned):
        thing.forget()
    owned.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)
