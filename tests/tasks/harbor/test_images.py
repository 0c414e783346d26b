"""Building the image of a Harbor task with a real daemon; nothing is pulled."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from forkgym import tasks
from forkgym.sandboxes.errors import ImageError
from forkgym.tasks.importers.harbor_images import build

Make = Callable[..., Path]
BASE = "forkgym-test-harbor-base:1"


@pytest.fixture(scope="module")
def client(daemon: None) -> Iterator[Any]:
    """The daemon's client; the daemon has an image that holds one file."""
    docker: Any = pytest.importorskip("docker")
    client: Any = docker.from_env()
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("marker"))
    name, _, tag = BASE.partition(":")
    client.api.import_image_from_data(stream.getvalue(), repository=name, tag=tag)
    yield client
    client.images.remove(BASE, force=True)
    client.close()


def test_a_dockerfile_is_built_once_by_its_content(client: Any, make: Make) -> None:
    dockerfile = f"FROM {BASE}\nWORKDIR /app\nCOPY data/ ./\n"
    (task,) = tasks.from_harbor(make({"environment/Dockerfile": dockerfile}))
    try:
        assert build(task)
        image = client.images.get(task.image)
        assert image.attrs["Config"]["WorkingDir"] == "/app"
        assert build(task)
        assert client.images.get(task.image).id == image.id
    finally:
        client.images.remove(task.image, force=True)


def test_a_base_that_is_not_here_is_named_and_not_pulled(client: Any, make: Make) -> None:
    (task,) = tasks.from_harbor(make({"environment/Dockerfile": "FROM acme/nowhere:7\nWORKDIR /app\n"}))
    with pytest.raises(ImageError, match="acme/greet: its base image 'acme/nowhere:7' is not here; docker pull acme/"):
        build(task)


def test_a_step_that_fails_is_named(client: Any, make: Make) -> None:
    (task,) = tasks.from_harbor(make({"environment/Dockerfile": f"FROM {BASE}\nWORKDIR /app\nCOPY absent ./\n"}))
    with pytest.raises(ImageError, match=r"acme/greet: environment/Dockerfile cannot be built here: .*absent"):
        build(task)


def test_an_image_that_can_only_be_pulled_is_not_built(make: Make) -> None:
    text = 'schema_version = "1.4"\n[environment]\ndocker_image = "acme/box:1"\nworkdir = "/srv/app"\n'
    (task,) = tasks.from_harbor(make({"task.toml": text}))
    assert not build(task)
