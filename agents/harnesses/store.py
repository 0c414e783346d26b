"""Installed harnesses on disk: made once, outside of sandboxes, and shown read-only inside.

    <store>/<name>-<hash>/               site/ (pip) or node_modules/ (npm)
    <store>/<name>-<hash>/harness.json   what was installed, and with which interpreter
    <store>/python<version>-<hash>/      an interpreter with its standard library, copied from this machine
    <store>/lock, .<random>              held while something is made; what is being made

The store lies beside built images, or where ``FORKGYM_HARNESSES`` says.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from forkgym.agents.errors import InstallError
from forkgym.agents.harnesses import runtime
from forkgym.agents.harnesses.base import CPU, ROOT, Harness
from forkgym.sandboxes import state
from forkgym.sandboxes.base import Mount

ENVIRONMENT = "FORKGYM_HARNESSES"
NODE = f"node-linux-{CPU}@22.23.3"  # Node.js as a package of the registry, so that images need none
_META = "harness.json"
_PATIENCE = 1800.0  # seconds for one command of an installation


@dataclass(frozen=True)
class Installed:
    """A harness that can be run: its ``folder`` and that of a Python interpreter, whose ``version`` is 3.11 or so."""

    harness: Harness
    folder: Path
    python: Path
    version: str

    @property
    def mounts(self) -> tuple[Mount, ...]:
        """What a sandbox must show."""
        own = Mount(str(self.folder), f"{ROOT}/{self.harness.name}")
        return (own, Mount(str(self.python), runtime.place(self.version)))


def store_dir() -> Path:
    """Where harnesses are kept, made on first use."""
    named = os.environ.get(ENVIRONMENT)
    path = Path(named) if named else state.large_dir(state.state_dir()) / "harnesses"
    path.mkdir(mode=0o755, parents=True, exist_ok=True)
    return path


def find(harness: Harness) -> Installed | None:
    """The installation of exactly this version, or ``None``."""
    folder = store_dir() / _folder(harness)
    record = state.read_json(folder / _META)
    if record is None:
        return None
    return Installed(harness, folder, folder.parent / record["python"], version_of(harness))


def require(harness: Harness) -> Installed:
    """As ``find``. Raises ``InstallError`` that says how to install it."""
    found = find(harness)
    if found is None:
        raise InstallError(
            f"harness {harness.name!r} ({', '.join(harness.packages)}) is not installed: "
            f"run `forkgym harness install {harness.name}`"
        )
    return found


def install(harness: Harness, report: Callable[[str], None] = lambda _: None) -> Installed:
    """Install it, unless it is there. Two at once install it once. Raises ``InstallError``."""
    with _locked():
        if (found := find(harness)) is not None:
            return found
        target = store_dir() / _folder(harness)
        python = runtime.make(version_of(harness), store_dir(), report)
        with _made(target) as scratch:
            if harness.packages:
                report(f"installing {', '.join(harness.packages)}")
                _npm(harness, scratch) if harness.manager == "npm" else _pip(harness, scratch)
            state.write_json(scratch / _META, {"packages": list(harness.packages), "python": python.name})
    return require(harness)


def remove(harness: Harness) -> bool:
    """Remove its installation; True if there was one."""
    with _locked():
        folder = store_dir() / _folder(harness)
        if not folder.exists():
            return False
        away = folder.with_name(f".{uuid.uuid4().hex}")
        folder.rename(away)
        state.remove_tree(away)
        return True


def version_of(harness: Harness) -> str:
    """The Python that goes with it: its own, or for the relay alone that of ForkGym."""
    return harness.python or runtime.CURRENT


def _folder(harness: Harness) -> str:
    about = repr((harness.manager, harness.packages, version_of(harness), harness.node, NODE))
    return f"{harness.name}-{hashlib.sha256(about.encode()).hexdigest()[:12]}"


@contextmanager
def _locked() -> Generator[None]:
    """One at a time makes or removes something here. The lock goes with its holder."""
    with open(store_dir() / "lock", "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        for path in store_dir().glob(".*"):
            state.remove_tree(path)  # of an installation that was killed
        yield


@contextmanager
def _made(target: Path) -> Generator[Path]:
    """A folder that becomes ``target`` at once when the block ends well, readable by everybody."""
    scratch = target.with_name(f".{uuid.uuid4().hex}")
    scratch.mkdir(mode=0o755)
    try:
        yield scratch
        runtime.open_to_all(scratch)
        scratch.rename(target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _pip(harness: Harness, scratch: Path) -> None:
    python = runtime.command(version_of(harness))
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-input"]
    command += ["--disable-pip-version-check", "--target", str(scratch / "site"), *harness.packages]
    _run(command, harness)


def _npm(harness: Harness, scratch: Path) -> None:
    """Without install scripts: nothing of the harness runs outside of a sandbox."""
    command = ["npm", "install", "--prefix", str(scratch), "--ignore-scripts", "--no-audit", "--no-fund"]
    command += ["--loglevel=error", *([NODE] if harness.node else []), *harness.packages]
    _run(command, harness)


def _run(command: list[str], harness: Harness) -> None:
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=_PATIENCE
        )
    except FileNotFoundError as error:
        raise InstallError(
            f"harness {harness.name!r} needs {command[0]!r}, which this machine does not have"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise InstallError(f"harness {harness.name!r}: {command[0]} did not end within {_PATIENCE:g} s") from error
    if done.returncode:
        said = "\n".join(line for line in (done.stderr + done.stdout).splitlines() if line.strip())
        raise InstallError(f"harness {harness.name!r} could not be installed: {said[-1000:]}")
