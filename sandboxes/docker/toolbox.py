"""The toolbox: an interpreter with all it needs in one directory, to be shown read-only in any container.

It is made of the interpreter that runs here, so it works over images without Python, and over those with another C
library. What it needs is found by running the guest once and looking at what it has loaded.

    python, ld.so                   the interpreter, and the loader that starts it
    lib/                            the libraries, and the part of the standard library in use
    forkgym/                        the guest's modules
    start.py                        the entry
    run/                            where the socket of a container's owner is mounted
    dev/bash                        the script of a persistent shell, under the name its messages should begin with
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

from forkgym.sandboxes.errors import SandboxUnavailableError

PLACE = "/.forkgym"
SOCKET = f"{PLACE}/run/socket"
_INTERPRETER = [f"{PLACE}/ld.so", "--library-path", f"{PLACE}/lib", f"{PLACE}/python", "-I", "-S", "-B"]
COMMAND = [*_INTERPRETER, f"{PLACE}/start.py", SOCKET]
DISTANT_COMMAND = [*_INTERPRETER, f"{PLACE}/start.py", "-"]
ROOT_COMMAND = [*_INTERPRETER, f"{PLACE}/start.py", "root"]
_ROOM = Path(__file__).resolve().parents[1]
_START = """import sys
sys.path.append("/.forkgym")
from forkgym.sandboxes.guest.container import main
main(sys.argv[1])
"""
# Everything that is loaded once the guest is: modules by file, and (by the memory map) programs and libraries.
_LOOK = """import json, sys, types
for name, path in json.loads(sys.argv[1]).items():
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [path]
import forkgym.sandboxes.guest.container
import encodings.ascii, encodings.latin_1, encodings.utf_8
modules = [getattr(module, "__file__", None) for module in sys.modules.values()]
maps = [line.split(None, 5)[5].strip() for line in open("/proc/self/maps") if line.count("/")]
print(json.dumps({"modules": [m for m in modules if m], "mapped": sorted(set(maps)), "executable": sys.executable,
    "version": "python%d.%d" % sys.version_info[:2], "stdlib": json.__file__.rpartition("/json/")[0]}))
"""


def prepare(state: Path) -> Path:
    """The toolbox below the state directory, made on first use. Raises ``SandboxUnavailableError``."""
    root = state / "toolbox"
    path = root / fingerprint()
    if path.is_dir():
        return path
    root.mkdir(mode=0o700, exist_ok=True)
    scratch = root / f".{uuid.uuid4().hex}"
    try:
        _build(scratch)
        scratch.rename(path)
    except (OSError, subprocess.SubprocessError) as error:
        shutil.rmtree(scratch, ignore_errors=True)
        if not path.is_dir():
            raise SandboxUnavailableError(f"the toolbox for containers cannot be made in {root}: {error}") from error
    return path


@functools.cache
def fingerprint() -> str:
    """What tells this toolbox from that of another interpreter or version."""
    interpreter = os.stat(sys.executable)
    digest = hashlib.sha256(repr((sys.version, interpreter.st_size, interpreter.st_mtime_ns, _START)).encode())
    for path in (Path(__file__), *sorted((_ROOM / "guest").glob("*.py"))):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _build(target: Path) -> None:
    found = _look()
    library = target / "lib" / found["version"]
    for folder in (library / "lib-dynload", target / "run", target / "dev", target / "forkgym" / "sandboxes"):
        folder.mkdir(parents=True)
    _copy(Path(found["executable"]), target / "python")
    for name in found["modules"]:
        path = Path(name)
        if path.is_relative_to(found["stdlib"]):
            _copy(path, library / path.relative_to(found["stdlib"]))
    _copy(Path(found["stdlib"], "os.py"), library / "os.py")  # how the interpreter knows its library
    for name in found["mapped"]:
        path = Path(name)
        if path.name.startswith(("ld-", "ld.")):
            _copy(path, target / "ld.so")
        elif ".so" in path.name and not path.is_relative_to(found["stdlib"]):
            _copy_library(path, target / "lib")
    for path in (_ROOM / "guest").glob("*.py"):
        _copy(path, target / "forkgym" / "sandboxes" / "guest" / path.name)
    (target / "start.py").write_text(_START)
    (target / "dev" / "bash").symlink_to("/proc/self/fd/63")
    for folder, _, names in os.walk(target):
        os.chmod(folder, 0o755)
        for name in names:
            path = Path(folder, name)
            if not path.is_symlink():
                path.chmod(0o755)


def _look() -> dict[str, Any]:
    packages = {"forkgym": _ROOM.parent, "forkgym.sandboxes": _ROOM, "forkgym.sandboxes.guest": _ROOM / "guest"}
    argument = json.dumps({name: str(path) for name, path in packages.items()})
    command = [os.path.realpath(sys.executable), "-I", "-S", "-B", "-c", _LOOK, argument]
    done = subprocess.run(command, capture_output=True, check=True, timeout=60, env={}, cwd="/")
    return json.loads(done.stdout)


def _copy_library(path: Path, target: Path) -> None:
    """A library under each of its names: what asks for it knows it by the shorter ones."""
    names = path.parent.glob(f"{path.name.partition('.so')[0]}.so*")
    for name in {path.name, *(other.name for other in names if other.resolve() == path.resolve())}:
        _copy(path, target / name)


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
