"""Fixtures of the sandbox room: a place for state that can hold overlays, and a process of an ordinary user."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from forkgym.sandboxes import state

USER = 1500  # an id that owns nothing on a usual machine


def find_interpreter():
    """A Python that every user can start: ours may lie in root's home."""
    for path in (Path(sys.executable).resolve(), Path("/usr/bin/python3")):
        if all(step.stat().st_mode & 0o001 for step in (path, *path.parents)):
            return str(path)
    raise AssertionError("no Python that an ordinary user can start; install one as /usr/bin/python3")


class OrdinaryUser:
    """Runs Python programs without root's powers, on a copy of the room: the checkout may be closed to that user."""

    def __init__(self, place):
        package = place / "package" / "forkgym"
        room = Path(state.__file__).parent
        shutil.copytree(room, package / "sandboxes", ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("errors.py", "registry.py"):
            shutil.copy(room.parent / name, package / name)
        (package / "__init__.py").write_text("")
        self.home = place / "home"
        self.home.mkdir()
        self._command = [find_interpreter(), "-B", "-c"]
        if os.geteuid() == 0:
            os.chown(self.home, USER, USER)
            self._command = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", *self._command]
        self._environment = {
            "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "HOME": str(self.home),
            "PYTHONPATH": str(package.parent),
            state.ENVIRONMENT: str(self.home / "state"),
        }

    def run(self, program, *arguments, timeout=110):
        return subprocess.run(
            [*self._command, program, *map(str, arguments)],
            env=self._environment,
            cwd=self.home,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )


def make_place():
    """A directory that every user may enter and that can hold overlays, as /tmp of a container can't."""
    for folder in ("/dev/shm", "/var/tmp", "/tmp"):
        path = Path(tempfile.mkdtemp(prefix="forkgym-test-", dir=folder))
        if state._unfit(path) is None:
            path.chmod(0o755)
            return path
        path.rmdir()
    raise AssertionError("no place for overlays in /dev/shm, /var/tmp or /tmp")


@pytest.fixture
def place():
    path = make_place()
    yield path
    state.remove_tree(path)


@pytest.fixture
def root(place, monkeypatch):
    """A state directory for this test alone, which makes no sandboxes."""
    monkeypatch.setenv(state.ENVIRONMENT, str(place / "state"))
    return state.state_dir()


@pytest.fixture
def ordinary_user(place):
    return OrdinaryUser(place)


@pytest.fixture(scope="module")
def module_user():
    """An ordinary user shared by the tests of a module."""
    place = make_place()
    yield OrdinaryUser(place)
    state.remove_tree(place)


@pytest.fixture(scope="session", autouse=True)
def own_state():
    """A state directory for the sandboxes of this run; the process that makes them keeps to the one it began with."""
    place = make_place()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(state.ENVIRONMENT, str(place / "state"))
        yield state.state_dir()
    state.remove_tree(place)
