"""The same operations through a container engine. The image is made from this machine's own files: no download."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

from harness import Timing, measure, measure_command

IMAGE = "forkgym-bench"
PROGRAMS = ("bash", "sleep", "true")


def available() -> bool:
    """True if a daemon answers."""
    if shutil.which("docker") is None:
        return False
    return subprocess.run(["docker", "info"], capture_output=True, check=False, timeout=20).returncode == 0


def run_all(n: int) -> dict[str, Timing]:
    """Create (``docker run -d``), exec, and fork (``docker commit`` and ``docker run -d``), ``n`` times each."""
    _docker("import", "-", IMAGE, data=_image())
    made: list[str] = []

    def start(image: str = IMAGE) -> None:
        made.append(_docker("run", "-d", "--network", "none", image, "/bin/sleep", "600"))

    def fork() -> None:
        start(_docker("commit", made[0]))

    def drop_last() -> None:
        box = made.pop()
        image = _docker("inspect", "-f", "{{.Image}}", box)
        _docker("rm", "-f", box)
        if image != _docker("inspect", "-f", "{{.Id}}", IMAGE):
            _docker("rmi", image)

    try:
        create = measure(start, n, warmup=1, after=drop_last)
        start()
        run = measure_command(["docker", "exec", made[0], "/bin/true"], n)
        fork_one = measure(fork, n, warmup=1, after=drop_last)
    finally:
        for box in made:
            _docker("rm", "-f", box)
        _docker("rmi", IMAGE)
    return {"create": create, "exec": run, "fork 1": fork_one}


def _docker(*arguments: str, data: bytes | None = None) -> str:
    done = subprocess.run(["docker", *arguments], input=data, capture_output=True, check=True)
    return done.stdout.decode().strip()


def _image() -> bytes:
    """A tar of a few programs of this machine and the libraries that they load."""
    paths: set[str] = set()
    for program in PROGRAMS:
        found = shutil.which(program)
        if found is None:
            raise RuntimeError(f"{program} is not on this machine")
        libraries = subprocess.run(["ldd", found], capture_output=True, text=True, check=True).stdout
        paths |= {found, *re.findall(r"(/\S+) \(0x", libraries)}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", dereference=True) as tar:
        for path in sorted(paths):
            target = f"bin/{Path(path).name}" if Path(path).name in PROGRAMS else path.lstrip("/")
            tar.add(path, target)
    return buffer.getvalue()
