"""What an image name means to the docker backend: this machine's system, a built image, or one of the daemon's.

The first two are directories here, which an overlay uses as they are; the container then starts from an empty image.
"""

from __future__ import annotations

import io
import tarfile
from dataclasses import dataclass
from pathlib import Path

from forkgym.sandboxes.base import Mount
from forkgym.sandboxes.docker.container import label
from forkgym.sandboxes.docker.engine import Engine
from forkgym.sandboxes.errors import ImageError
from forkgym.sandboxes.images.store import open_store
from forkgym.sandboxes.local import image
from forkgym.sandboxes.local.image import HOST, Image

_REPOSITORY = "forkgym"
_EMPTY = "empty"
_EMPTY_DIRECTORIES = ("dev", "etc", "proc", "sys", "usr")


@dataclass(frozen=True)
class Base:
    """What a container starts from. ``ref`` names this very image for good; ``image`` is the daemon's name for it.

    ``files``: directories here that an overlay is to show instead. ``mounts``: what belongs to the image beside that.
    """

    ref: str
    image: str
    files: Image | None = None
    mounts: tuple[Mount, ...] = ()


def for_overlay(engine: Engine, root: Path, name: str) -> Base:
    """The image as the lowest part of an overlay. Raises ``ImageError``."""
    files = _built(root, name)
    if files is not None:
        return Base(files.ref, empty(engine), files)
    found = engine.image_id(name)
    return Base(found, found)


def for_commit(engine: Engine, root: Path, name: str) -> Base:
    """The image as the whole root file system of a container. Raises ``ImageError``."""
    if name == HOST:
        return _host(engine, root)
    files = _built(root, name)
    if files is None:
        found = engine.image_id(name)
        return Base(found, found)
    tag = f"{_REPOSITORY}/{files.ref.replace('@', ':')}"
    try:
        engine.image_id(tag)
    except ImageError as error:
        command = f"forkgym images build {name.partition('@')[0]} --docker"
        raise ImageError(f"the image {name!r} is not in the docker daemon, where commits need it: {command}") from error
    return Base(files.ref, tag)


def empty(engine: Engine) -> str:
    """The daemon's name of an image with nothing in it, made on first use."""
    return _imported(engine, _EMPTY, _empty())


def _built(root: Path, name: str) -> Image | None:
    """The image that was built here; ``None`` if nothing of this name was, so that it can only be the daemon's."""
    if name != HOST and open_store(root).record(name.partition("@")[0]) is None:
        return None
    return image.load(name, root)


def _host(engine: Engine, root: Path) -> Base:
    """A docker image of the skeleton, with this machine's /usr mounted over it."""
    if not engine.local:
        raise ImageError(f"the image {HOST!r} is this machine's; name one that the other machine's daemon has")
    skeleton = image.load(HOST, root)
    lower = Path(skeleton.lowers["root"][0])
    mounts = (Mount("/usr", "/usr"), *(Mount(source, target) for source, target in skeleton.binds))
    return Base(HOST, _imported(engine, lower.parent.name, _packed(lower)), mounts=mounts)


def _imported(engine: Engine, tag: str, archive: bytes) -> str:
    name = f"{_REPOSITORY}:{tag}"
    try:
        engine.image_id(name)
    except ImageError:
        engine.import_image(archive, _REPOSITORY, tag, label("base"))
    return name


def _empty() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name in _EMPTY_DIRECTORIES:
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(entry)
    return buffer.getvalue()


def _packed(folder: Path) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.add(folder, ".")
    return buffer.getvalue()
