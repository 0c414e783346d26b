"""Shared by all tests: a state directory for this run alone, and its last word in words that any machine can read."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from _pytest.terminal import TerminalReporter

from forkgym.agents.harnesses import store
from forkgym.sandboxes import state

# Read when torch is imported, here and in the processes that tests start: tiny models gain nothing from more threads,
# and lose much on a busy machine.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell gives its background jobs a SIGINT that is ignored, and they hand that on: Ctrl-C could not be tested.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


_FOLDERS = ("/dev/shm", "/var/tmp", "/tmp")
_PLACE = "forkgym-test-"


def sweep_places(folders: Iterable[str] = _FOLDERS) -> None:
    """Remove the places that killed runs of this user left behind."""
    for path in (path for folder in folders for path in Path(folder).glob(f"{_PLACE}*-*")):
        owner = state.Owner.from_tag(path.name.removeprefix(_PLACE).rpartition("-")[0])
        if owner is not None and not owner.alive() and path.stat().st_uid == os.geteuid():
            state.remove_tree(path)


@contextlib.contextmanager
def make_place() -> Generator[Path]:
    """A directory that every user may enter and that can hold overlays, as /tmp of a container can't."""
    for folder in _FOLDERS:
        path = Path(tempfile.mkdtemp(prefix=f"{_PLACE}{state.Owner.current().tag()}-", dir=folder))
        if state._unfit(path) is None:
            path.chmod(0o755)
            try:
                yield path
            finally:
                state.remove_tree(path)
            return
        path.rmdir()
    raise AssertionError("no place for overlays in /dev/shm, /var/tmp or /tmp")


@pytest.fixture(scope="session")
def places() -> Callable[[], AbstractContextManager[Path]]:
    """``with places() as path``: a directory for state, gone afterwards."""
    return make_place


@pytest.fixture(name="sweep_places")
def give_sweep_places() -> Callable[[Iterable[str]], None]:
    """``sweep_places(folders)``: what every run begins with."""
    return sweep_places


@pytest.fixture(scope="session", autouse=True)
def own_state() -> Iterator[Path]:
    """The state directory of this run: the user's own is never touched, and nothing of this one is left behind.

    Harnesses that the user has installed stay where they are, so that their tests can run.
    """
    sweep_places()
    with make_place() as place, pytest.MonkeyPatch.context() as patch:
        patch.setenv(store.ENVIRONMENT, str(store.store_dir()))
        patch.setenv(state.ENVIRONMENT, str(place / "state"))
        yield state.state_dir()


@pytest.fixture(scope="session")
def daemon() -> None:
    """A docker daemon of this host; without one, tests that need it are skipped. CI starts one."""
    docker = pytest.importorskip("docker", reason="the extra docker is not installed")
    try:
        with contextlib.closing(docker.from_env()) as client:
            client.ping()
    except docker.errors.DockerException as error:
        pytest.skip(f"no docker daemon answers: {error}")


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Print one line with the counts of this run."""
    passed, failed, errors, skipped = (
        len(terminalreporter.stats.get(kind, [])) for kind in ("passed", "failed", "error", "skipped")
    )
    terminalreporter.write_line("")
    terminalreporter.write_line(f"tests: {passed} passed, {failed + errors} failed, {skipped} skipped")
