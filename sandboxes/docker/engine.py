"""Calls to the Docker daemon: few at a time, patient, and with failures in the terms of this room."""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import platform
import socket
import threading
from collections.abc import Generator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import docker
import docker.errors
import requests.exceptions

from forkgym.sandboxes.docker.stream import Stream
from forkgym.sandboxes.errors import (
    ImageError,
    SandboxDeadError,
    SandboxError,
    SandboxLimitError,
    SandboxTimeoutError,
    SandboxUnavailableError,
)
from forkgym.sandboxes.local import launcher

PATIENCE = 600.0  # seconds: a busy daemon answers late, and giving up on a call does not undo it
_OWN_NAMES = ("localhost", "localunixsocket", "127.0.0.1", "::1")  # the SDK's for a unix socket is among them
_KNOCK = 10.0  # seconds until a machine that does not answer at all is given up
_STREAMS = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
# What daemons protect by themselves, and the groups: not all daemons do.
_READ_ONLY = [
    *("/proc/asound", "/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"),
    "/sys/fs/cgroup",
]
_AT_ONCE = 4  # calls that make or start something; more of them only wait inside the daemon
# After these nobody knows what the daemon has done, or is about to do.
_UNANSWERED = (SandboxTimeoutError, SandboxUnavailableError, KeyboardInterrupt, SystemExit)
_NO_SSH = (
    "a docker daemon behind ssh:// is reached through a tunnel: run "
    "`ssh -nNT -L /tmp/docker.sock:/var/run/docker.sock HOST` and give unix:///tmp/docker.sock"
)
_ADVICE = "start it (as root: dockerd, or systemctl start docker), or set DOCKER_HOST to one that runs"


class Engine:
    """One daemon. Connects on first use; every method may be called from any thread."""

    def __init__(self, url: str | None = None, patience: float = PATIENCE) -> None:
        self._url = url
        self._patience = patience
        self._turns = threading.BoundedSemaphore(_AT_ONCE)
        launcher.owned.add(self)
        self._cpus: int | None = None
        self._lost: set[str] = set()  # containers that may exist although their creation failed

    def close(self) -> None:
        """Let go of the connections; the next call makes new ones."""
        api = self.__dict__.pop("_api", None)
        if api is not None:
            api.close()

    def forget(self) -> None:
        """In a forked child: leave the connections to the parent, and wait for none of its threads."""
        self.__dict__.pop("_api", None)
        self._turns = threading.BoundedSemaphore(_AT_ONCE)

    @functools.cached_property
    def _api(self) -> Any:
        url = self._url or os.environ.get("DOCKER_HOST") or ""
        if url.startswith("ssh://"):
            raise SandboxUnavailableError(_NO_SSH)
        with _explained("connect"):
            _knock(url)
            environment = os.environ if self._url is None else {**os.environ, "DOCKER_HOST": self._url}
            options: dict[str, Any] = {"timeout": self._patience, "max_pool_size": 64, "environment": environment}
            return docker.from_env(**options).api

    @functools.cached_property
    def local(self) -> bool:
        """True if the daemon is on this host: reached through a socket of it or at its loopback, and no tunnel."""
        with _explained("connect"):
            if urlsplit(self._api.base_url).hostname not in _OWN_NAMES:
                return False
        info = self.info()
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        ours = (platform.node(), platform.release(), memory)
        return ours == (info["Name"], info["KernelVersion"], info["MemTotal"])

    def info(self) -> dict[str, Any]:
        """What the daemon says of itself."""
        with _explained("ask"):
            return self._api.info()

    # Containers

    def run(
        self, name: str, image: str, host: Mapping[str, Any], files: bytes, *, attach: bool = False, **options: object
    ) -> Stream | None:
        """Create a container, unpack the tar archive ``files`` at its root, and start it. On failure nothing is left.

        ``host`` are options of ``create_host_config``, ``options`` those of ``create_container``. ``attach``: to its
        standard streams, which are returned.
        """
        stream: Stream | None = None
        with self._turns:
            try:
                with _explained(f"create a container of {image!r}", image):
                    cpu = self._within(host.get("nano_cpus"))
                    config = self._api.create_host_config(**{**host, "nano_cpus": cpu})
                    config["ReadonlyPaths"] = _READ_ONLY  # for which the SDK has no name
                    self._api.create_container(image, name=name, host_config=config, **options)
                    if files:
                        self._api.put_archive(name, "/", files)
                    if attach:
                        stream = Stream(self._api.attach_socket(name, _STREAMS))
                    self._api.start(name)
                return stream
            except BaseException as error:
                if stream is not None:
                    stream.close()
                self._undo(
                    name, answered=type(error) in (SandboxError, SandboxDeadError, SandboxLimitError, ImageError)
                )
                raise

    def enter(self, name: str, command: Sequence[str], user: str) -> Stream:
        """Start another process in a container; returns its standard streams."""
        with self._turns, _explained("start a process in a container"):
            made = self._api.exec_create(name, list(command), stdin=True, user=user, workdir="/")
            return Stream(self._api.exec_start(made["Id"], socket=True))

    def hold(self, name: str, image: str, labels: Mapping[str, str]) -> None:
        """Make a container that never runs, whose volumes others can show. One of this name may exist already."""
        with self._turns, _explained(f"create a container of {image!r}", image):
            try:
                self._api.create_container(image, ["-"], name=name, labels=dict(labels), network_disabled=True)
            except docker.errors.APIError as error:
                if error.status_code != 409:
                    raise

    def _within(self, nano_cpus: int | None) -> int | None:
        """A limit of at least all processors of the daemon's machine is none; the daemon refuses to hear of more."""
        if nano_cpus is None:
            return None
        if self._cpus is None:
            self._cpus = int(self._api.info()["NCPU"])
        return nano_cpus if nano_cpus < self._cpus * 1_000_000_000 else None

    def remove(self, name: str) -> bool:
        """Kill and remove a container; false if there is none."""
        try:
            with _explained("remove a container"):
                self._api.remove_container(name, v=True, force=True)
        except SandboxDeadError:
            return False
        except SandboxError as error:
            if "already in progress" not in str(error):
                raise
        self._lost.discard(name)
        return True

    def _undo(self, name: str, answered: bool) -> None:
        """Remove what a failed creation left. The daemon may still be about to make it, unless it ``answered``."""
        if not answered:
            self._lost.add(name)
        with contextlib.suppress(SandboxError):
            self.remove(name)

    def remove_lost(self) -> int:
        """Remove containers whose creation failed for us but not for the daemon; returns how many."""
        return sum(self.remove(name) for name in list(self._lost))

    def has_container(self, name: str) -> bool:
        """True if there is one of this name, running or not."""
        with _explained("inspect"):
            try:
                self._api.inspect_container(name)
            except docker.errors.NotFound:
                return False
        return True

    def containers(self, label: str) -> list[tuple[str, dict[str, str]]]:
        """Name and labels of all containers with this label."""
        with _explained("list containers"):
            found: list[dict[str, Any]] = self._api.containers(all=True, filters={"label": label})
        return [(entry["Names"][0].lstrip("/"), entry["Labels"]) for entry in found if entry["Names"]]

    def exit_message(self, name: str) -> str:
        """Why a container ended, as far as the daemon knows."""
        try:
            with _explained("inspect"):
                state = self._api.inspect_container(name)["State"]
        except SandboxError:
            return "it is gone"
        return f"status {state['Status']}, exit code {state['ExitCode']} {state['Error']}".strip()

    def changes(self, name: str) -> list[str]:
        """Paths of all that was added or changed in a container."""
        with _explained("compare a container with its image"):
            entries: list[dict[str, Any]] = self._api.diff(name) or []
        return [entry["Path"] for entry in entries]

    # Images

    def image_id(self, name: str) -> str:
        """The content id of an image. Raises ``ImageError``: nothing is ever pulled."""
        with _explained(f"find the image {name!r}", name):
            try:
                return self._api.inspect_image(name)["Id"]
            except (docker.errors.NotFound, docker.errors.NullResource) as error:
                raise _no_image(name) from error
            except docker.errors.APIError as error:
                if error.status_code == 400:  # no name that an image can have
                    raise _no_image(name) from error
                raise

    def import_image(
        self, archive: object, repository: str, tag: str, labels: Mapping[str, str], volumes: Sequence[str] = ()
    ) -> None:
        """Make an image from a tar archive (bytes, an iterable of them or a file) of its root file system."""
        changes = [f"LABEL {key}={json.dumps(value)}" for key, value in labels.items()]
        changes += [f"VOLUME {path}" for path in volumes]
        with self._turns, _explained(f"import the image {repository}:{tag}"):
            self._api.import_image_from_data(archive, repository=repository, tag=tag, changes=changes)

    def tag(self, image: str, repository: str, tag: str) -> None:
        """Give an image another name, which no other has any more."""
        with _explained(f"tag the image {image!r}", image):
            self._api.tag(image, repository, tag, force=True)

    def commit(self, container: str, repository: str, tag: str, labels: Mapping[str, str]) -> str:
        """Make an image of a container's files; returns its id."""
        with self._turns, _explained("commit a container"):
            conf = {"Labels": dict(labels)}
            return self._api.commit(container, repository=repository, tag=tag, pause=False, conf=conf)["Id"]

    def layers(self, image: str) -> int:
        """How many layers an image stands on."""
        with _explained(f"inspect the image {image!r}", image):
            return len(self._api.inspect_image(image)["RootFS"]["Layers"])

    def images(self, label: str) -> list[tuple[list[str], dict[str, str]]]:
        """Names (or the id of one without a name) and labels of all images with this label."""
        with _explained("list images"):
            found: list[dict[str, Any]] = self._api.images(filters={"label": label})
        return [(_names(entry), entry["Labels"] or {}) for entry in found]

    def export(self, container: str) -> Any:
        """The files of a container as a stream of tar data."""
        with _explained("export a container"):
            return self._api.export(container)

    def remove_image(self, name: str) -> bool:
        """Take away a name, and with the last one the image, unless it is in use; false if nothing was removed."""
        try:
            with _explained("remove an image", name):
                self._api.remove_image(name, force=":" in name and not name.startswith("sha256:"))
        except (ImageError, SandboxError):
            return False
        return True


def _knock(url: str) -> None:
    """Raise ``OSError`` soon if nothing listens there; the patience for answers would be spent on it."""
    parts = urlsplit(url)
    if parts.scheme in ("tcp", "http", "https") and parts.hostname and parts.port:
        socket.create_connection((parts.hostname, parts.port), _KNOCK).close()


def _names(image: dict[str, Any]) -> list[str]:
    tags: list[str] = image["RepoTags"] or []
    return [tag for tag in tags if not tag.startswith("<none>")] or [image["Id"]]


@contextlib.contextmanager
def _explained(what: str, image: str | None = None) -> Generator[None]:
    """Failures of the SDK as errors of this room."""
    try:
        yield
    except SandboxError:
        raise
    except docker.errors.ImageNotFound as error:
        raise _no_image(image) from error
    except docker.errors.NotFound as error:
        if image is not None and "image" in str(error.explanation).lower():
            raise _no_image(image) from error
        raise SandboxDeadError(f"cannot {what}: {error.explanation}") from error
    except docker.errors.APIError as error:
        text = str(error.explanation or error)
        if any(word in text for word in ("no space left", "disk quota exceeded")):
            raise SandboxLimitError(f"cannot {what}: {text}. Free space with `docker system prune`") from error
        raise SandboxError(f"the docker daemon could not {what}: {text}") from error
    except (TimeoutError, requests.exceptions.Timeout) as error:
        raise SandboxTimeoutError(f"the docker daemon did not answer in time ({what}): {error}") from error
    except (docker.errors.DockerException, requests.exceptions.RequestException, OSError) as error:
        raise SandboxUnavailableError(_unreachable(error)) from None


def _no_image(image: str | None) -> ImageError:
    return ImageError(
        f"the docker daemon has no image {image!r}, and none is pulled unasked: make it with "
        f"`forkgym images build {image} --docker`, or fetch it with `docker pull {image}`"
    )


def _unreachable(error: BaseException) -> str:
    """What is wrong, of errors of four libraries, one inside the other."""
    cause: BaseException | None = error
    why = str(error)
    while cause is not None:
        if isinstance(cause, PermissionError) or f"[Errno {errno.EACCES}]" in str(cause):
            return "no permission on the socket of the docker daemon: use root, or a user of the group docker"
        why = getattr(cause, "strerror", None) or why  # the innermost says most
        cause = cause.__cause__ or cause.__context__
    return f"no docker daemon answers ({why}): {_ADVICE}"
