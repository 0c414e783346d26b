"""Fixtures of the sandbox room: places for state, and a process of an ordinary user."""

import os
import shutil
import subprocess
import sys
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


@pytest.fixture
def place(places):
    with places() as path:
        yield path


@pytest.fixture
def root(place, monkeypatch):
    """A state directory for this test alone, which makes no sandboxes."""
    monkeypatch.setenv(state.ENVIRONMENT, str(place / "state"))
    return state.state_dir()


@pytest.fixture
def ordinary_user(place):
    return OrdinaryUser(place)


@pytest.fixture(scope="module")
def module_user(places):
    """An ordinary user shared by the tests of a module."""
    with places() as path:
        yield OrdinaryUser(path)
