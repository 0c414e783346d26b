"""Packages from the registries that this machine is set up for, fetched outside of sandboxes.

Only what is signed or plain data is fetched, and nothing of it is run here: no source distribution is built, no
install script started. Installing happens in a sandbox without a network.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from forkgym.sandboxes.errors import ImageError

ESSENTIAL = ("?and(?essential,?not(?name(^apt$)))", "usr-is-merged")
_PATIENCE = 1800.0  # seconds


def debian(packages: Sequence[str], status: Path, into: Path) -> None:
    """Fetch ``packages`` and all they need over what the dpkg ``status`` file lists, by this machine's apt sources."""
    (into / "partial").mkdir()
    options = {
        "Dir::State::status": status,
        "Dir::State::extended_states": into / "partial" / "extended_states",
        "Dir::Cache::archives": into,
        # The machine's own caches describe another system than the image.
        "Dir::Cache::pkgcache": "",
        "Dir::Cache::srcpkgcache": "",
        "Dir::Log": into / "partial",
        "APT::Sandbox::User": "root",
        "APT::Cmd::Pattern-Only": "true",
        "Debug::NoLocking": "true",
        "Acquire::Retries": "2",
    }
    words = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
    command = ["apt-get", "-qq", "-y", "--no-install-recommends", "--download-only", *words, "install", *packages]
    try:
        _run(command, "apt-get (is this Debian or Ubuntu?)", "`apt-get update` renews the list of packages")
    finally:
        shutil.rmtree(into / "partial")


def architecture() -> str:
    """What dpkg calls this machine's architecture."""
    return _run(["dpkg", "--print-architecture"], "dpkg (is this Debian or Ubuntu?)", "").strip()


def wheels(requirements: Sequence[str], python: str, into: Path) -> None:
    """Fetch pip and wheels for ``requirements`` and all they need, for CPython ``python`` such as "3.11"."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"]
    command += ["--only-binary=:all:", f"--python-version={python}", f"--dest={into}", "pip", *requirements]
    _run(command, "pip", "only packages with a wheel for the image's Python can be installed")


def npm_cache(packages: Sequence[str], into: Path, scratch: Path) -> str:
    """Fill an npm cache at ``into`` with ``packages`` and all they need; returns the registry's address."""
    # As the image will install them: where packages lie decides which versions are asked for.
    command = ["npm", "install", "--global", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    command += [f"--cache={into}", f"--prefix={scratch}", *packages]
    _run(command, "npm", "")
    return _run(["npm", "config", "get", "registry"], "npm", "").strip()


def _run(command: list[str], what: str, hint: str) -> str:
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=_PATIENCE
        )
    except FileNotFoundError as error:
        raise ImageError(f"this machine has no {what}") from error
    except subprocess.TimeoutExpired as error:
        raise ImageError(f"{command[0]} did not end within {_PATIENCE:g} s") from error
    if done.returncode:
        said = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        wrong = [line for line in said if line.startswith(("E:", "ERROR", "npm error", "npm ERR"))] or said
        raise ImageError("\n".join([*wrong[-4:], *([f"({hint})"] if hint else [])]))
    return done.stdout
