"""The same operations by the docker SDK alone, as people drive sandboxes without us: what ours are compared with.

The image is made of a few programs of this machine, so nothing is downloaded; all that is made here is removed.
"""

from __future__ import annotations

import contextlib
import functools
import io
import re
import shutil
import subprocess
import tarfile
import uuid
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from forkgym.errors import ConfigError
from forkgym.sandboxes.bench.operations import FILE_SIZE, FILES, SEED, WRITE_TREE
from forkgym.sandboxes.bench.timing import Timing, measure

_PROGRAMS = ("bash", "sleep", "split", "true")
_PATIENCE = 600  # seconds: a busy daemon takes long, and its client gives up after 60


def connect() -> Any:
    """A client of the daemon that answers here; ``None`` without one or without the docker SDK."""
    try:
        import docker
        from docker.errors import DockerException
    except ImportError:
        return None
    try:
        client: Any = docker.from_env(timeout=_PATIENCE)
        client.ping()
    except DockerException:
        return None
    return client


class Baseline:
    """Containers as the SDK makes them: ``run``, ``exec_run``, archives, ``commit``, ``remove(force)``."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.name = f"forkgym-bench-{uuid.uuid4().hex[:12]}"  # of the image, and the label of all that is made of it
        client.api.import_image_from_data(_programs(), repository=self.name)

    def operations(self, n: int) -> dict[str, Timing]:
        """What ``forkgym.sandboxes.bench.operations`` measures, by the same names, where the SDK can do it."""
        made: list[Any] = []
        images: list[str] = []

        def start() -> None:
            made.append(self._run())

        def end() -> None:
            while made:
                made.pop().remove(force=True)
            while images:
                self._client.images.remove(images.pop(), force=True)

        found = {"create": measure(start, n, warmup=1, after=end)}
        found["destroy"] = measure(lambda: made.pop().remove(force=True), n, warmup=1, before=start)
        with self._box() as box:
            found["exec true"] = measure(lambda: _done(box.exec_run(["true"])), n, warmup=1)
            for name, size in (("1 kB", 1_000), ("10 MB", 10_000_000)):
                data = _tar({"file": b"x" * size})
                found[f"write {name}"] = measure(functools.partial(box.put_archive, "/work", data), n, warmup=1)
                found[f"read {name}"] = measure(functools.partial(_read, box, "/work/file"), n, warmup=1)
            box.put_archive("/work", _tar({Path(SEED).name: b"x" * (FILES * FILE_SIZE)}))

            def write() -> None:
                _done(box.exec_run(WRITE_TREE))

            def commit() -> str:
                images.append(box.commit().id)
                return images[-1]

            def fork(count: int) -> None:
                image = commit()
                with ThreadPoolExecutor(count) as threads:
                    made.extend(threads.map(self._run, [image] * count))

            found["snapshot"] = measure(commit, n, warmup=1, before=write, after=end)
            found["fork 1"] = measure(lambda: fork(1), n, warmup=1, before=write, after=end)
            found["fork 8"] = measure(lambda: fork(8), max(2, n // 2), warmup=0, before=write, after=end)
        return found

    def cycle(self) -> None:
        """Create, exec and destroy one container."""
        with self._box() as box:
            _done(box.exec_run(["true"]))

    def close(self) -> None:
        """Remove the image and, after a failure, what was made of it."""
        for box in self._client.containers.list(all=True, filters={"label": self.name}):
            box.remove(force=True)
        for image in self._client.images.list(all=True, filters={"label": self.name}):
            self._client.images.remove(image.id, force=True)
        self._client.images.remove(self.name, force=True)

    def _run(self, image: str = "") -> Any:
        return self._client.containers.run(
            image or self.name, ["/bin/sleep", "3600"], detach=True, network_mode="none", labels=[self.name]
        )

    @contextlib.contextmanager
    def _box(self) -> Generator[Any]:
        box = self._run()
        try:
            yield box
        finally:
            box.remove(force=True)


def _read(box: Any, path: str) -> bytes:
    """A file's bytes, as a user of the SDK gets them."""
    chunks, _ = box.get_archive(path)
    with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as tar:
        file: Any = tar.extractfile(tar.getmembers()[0])
        return file.read()


def _done(result: Any) -> None:
    if result.exit_code != 0:
        raise ConfigError(f"a command of the baseline failed in its container: {result.output!r}")


def _tar(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def _programs() -> bytes:
    """A tar of some programs of this machine, the libraries that they load, and a working directory."""
    paths: set[str] = set()
    for program in _PROGRAMS:
        found = shutil.which(program)
        if found is None:
            raise ConfigError(f"the baseline needs {program}, which is not on this machine")
        libraries = subprocess.run(["ldd", found], capture_output=True, text=True, check=True).stdout
        paths |= {found, *re.findall(r"(/\S+) \(0x", libraries)}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", dereference=True) as tar:
        for path in sorted(paths):
            name = Path(path).name
            tar.add(path, f"bin/{name}" if name in _PROGRAMS else path.lstrip("/"))
        work = tarfile.TarInfo("work")
        work.type, work.mode = tarfile.DIRTYPE, 0o755
        tar.addfile(work)
    return buffer.getvalue()
