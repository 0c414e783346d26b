"""A Python interpreter to be shown in a sandbox: copied from one of this machine, without its site packages."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from forkgym.agents.errors import InstallError
from forkgym.agents.harnesses.base import ROOT
from forkgym.sandboxes import state

_LOOK = """import json, os, sys, sysconfig
print(json.dumps({"version": "%d.%d" % sys.version_info[:2], "executable": os.path.realpath(sys.executable),
    "stdlib": sysconfig.get_path("stdlib"), "libraries": sysconfig.get_config_var("LIBDIR")}))
"""
_UNUSED = ("site-packages", "dist-packages", "test", "tests", "idlelib", "turtledemo", "lib2to3")
# The loader finds the interpreter's own library; a variable would be handed on to the commands of the harness's model.
_LOADERS = {"x86_64": "/lib64/ld-linux-x86-64.so.2", "aarch64": "/lib/ld-linux-aarch64.so.1"}

CURRENT = f"{sys.version_info[0]}.{sys.version_info[1]}"


def place(version: str) -> str:
    """Where the interpreter is shown in a sandbox."""
    return f"{ROOT}/python{version}"


def argv(version: str) -> tuple[str, ...]:
    """The command line that starts it there, isolated from the variables and modules of whatever it works on."""
    root = place(version)
    return (_LOADERS[platform.machine()], "--library-path", f"{root}/lib", f"{root}/bin/python{version}", "-I")


def command(version: str) -> Path:
    """An interpreter of this version on this machine. Raises ``InstallError``."""
    return Path(_look(version)["executable"])


def make(version: str, store: Path, report: Callable[[str], None]) -> Path:
    """The copy of an interpreter of this version below ``store``, made on first use. Raises ``InstallError``."""
    found = _look(version)
    status = os.stat(found["executable"])
    key = repr((found, status.st_size, status.st_mtime_ns))
    target = store / f"python{version}-{hashlib.sha256(key.encode()).hexdigest()[:12]}"
    if target.is_dir():
        return target
    report(f"copying Python {version}")
    scratch = target.with_name(f".{uuid.uuid4().hex}")
    try:
        (scratch / "bin").mkdir(parents=True)
        shutil.copy(found["executable"], scratch / "bin" / f"python{version}")
        ignore = shutil.ignore_patterns(*_UNUSED, "config-*")
        shutil.copytree(found["stdlib"], scratch / "lib" / f"python{version}", ignore=ignore)
        for library in Path(found["libraries"]).glob(f"libpython{version}*.so*"):
            shutil.copy(library, scratch / "lib")
        open_to_all(scratch)
        scratch.rename(target)
    except OSError as error:
        raise InstallError(f"Python {version} could not be copied from {found['executable']}: {error}") from error
    finally:
        if scratch.exists():
            state.remove_tree(scratch)
    return target


def open_to_all(folder: Path) -> None:
    """Everybody may read and enter it, whatever the umask was."""
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | (0o755 if path.is_dir() else 0o644))


@functools.cache
def _look(version: str) -> dict[str, Any]:
    """Where an interpreter of this version lies. The one that runs ForkGym comes first."""
    candidates = [sys.executable, shutil.which(f"python{version}") or ""]
    candidates += [str(path) for path in Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}")]
    for candidate in filter(None, candidates):
        done = subprocess.run([candidate, "-I", "-c", _LOOK], capture_output=True, text=True, check=False)
        if done.returncode == 0 and (found := json.loads(done.stdout))["version"] == version:
            return found
    raise InstallError(f"no Python {version} on this machine; install it, so that `python{version}` starts it")
