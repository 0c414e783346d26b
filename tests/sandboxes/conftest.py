"""Fixtures of the sandbox room: a place for state that can hold overlays, and a process of an ordinary user."""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from forkgym.sandboxes import state

USER = 1500  # an id that owns nothing on a usual machine


@pytest.fixture
def shm():
    """A directory on a tmpfs that every user may enter: /tmp of a container is an overlay and can't hold another."""
    path = Path(tempfile.mkdtemp(prefix="forkgym-test-", dir="/dev/shm"))
    path.chmod(0o755)
    yield path
    with contextlib.suppress(FileNotFoundError):
        state.remove_tree(path)


@pytest.fixture
def root(shm, monkeypatch):
    """A state directory of its own for this test."""
    monkeypatch.setenv(state.ENVIRONMENT, str(shm / "state"))
    return state.state_dir()


@pytest.fixture
def as_user(shm):
    """Run a Python program as an ordinary user, on a copy of the room: the checkout may be closed to that user."""
    package = shm / "package" / "forkgym"
    room = Path(state.__file__).parent
    shutil.copytree(room, package / "sandboxes", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("errors.py", "registry.py"):
        shutil.copy(room.parent / name, package / name)
    (package / "__init__.py").write_text("")
    home = shm / "home"
    home.mkdir()
    command = [os.path.realpath(sys.executable), "-B"]
    if os.geteuid() == 0:
        os.chown(home, USER, USER)
        command = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", *command]
    environment = {
        "PATH": os.defpath + ":/usr/sbin:/sbin",
        "HOME": str(home),
        "PYTHONPATH": str(package.parent),
        state.ENVIRONMENT: str(home / "state"),
    }

    def run(program, *arguments, timeout=100):
        return subprocess.run(
            [*command, "-c", program, *map(str, arguments)],
            env=environment,
            cwd=home,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    return run
