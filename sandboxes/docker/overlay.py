"""A sandbox whose whole root file system is an overlay of the local backend, mounted into its container.

The container gives namespaces, control groups and a seccomp profile. An overlay over its image becomes "/" of all its
processes, so that states are frozen and forked as on the local backend, without the daemon.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from dataclasses import replace

from forkgym.sandboxes.base import Sandbox, SandboxSpec, Usage
from forkgym.sandboxes.docker import images
from forkgym.sandboxes.docker.container import Config
from forkgym.sandboxes.docker.images import Base
from forkgym.sandboxes.docker.sandbox import DockerSandbox, Host, directories, start_all
from forkgym.sandboxes.errors import SandboxUnavailableError
from forkgym.sandboxes.local import cleanup, launcher
from forkgym.sandboxes.local.disk import Disk
from forkgym.sandboxes.local.image import Image
from forkgym.sandboxes.local.launcher import Zygote
from forkgym.sandboxes.local.layered import LayeredSandbox
from forkgym.sandboxes.local.snapshots import Frozen
from forkgym.sandboxes.owner.environment import user_ids
from forkgym.sandboxes.owner.reply import Refused, ask

# What a kernel answers that lacks a call, or may not be asked for it.
_UNABLE = (errno.EINVAL, errno.ENODEV, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM)


class NoOverlayError(SandboxUnavailableError):
    """Containers cannot be given an overlay here."""


class OverlaySandbox(DockerSandbox, LayeredSandbox):
    """Frozen by exchanging the writable layer of its overlay."""

    def __init__(self, host: Host, spec: SandboxSpec, origin: Frozen, base: Base | None = None) -> None:
        """``base``: what the image means, if that is known."""
        self._base = base or images.for_overlay(host.engine, host.root, spec.image)
        self._root = host.root
        self._bottom = -1
        spec = replace(spec, image=self._base.ref)  # forks and snapshots stand on this very image
        super().__init__(host, spec, origin, Config(self._base.image, spec.limits, spec.user))

    @property
    def _zygote(self) -> Zygote:  # pyright: ignore[reportIncompatibleVariableOverride]
        return launcher.zygote()

    def _settle(self, origin: Frozen) -> None:
        self._pid, self._pidfd = self._container.pid, self._container.pidfd
        if not self._container.near:
            raise NoOverlayError(
                "an overlay needs a daemon on this host, and an owner who is root here; use fork='commit'"
            )
        try:
            files = self._base.files or self._container_files()
            self._disk = Disk(self._root, self.id, files, self.spec, origin.layers)
            uid, gid = user_ids(self.spec.user)
            details = {"pid": self._pid, "uid": uid, "gid": gid, "fresh": not origin.layers}
            details |= {"disk": self.spec.limits.disk, "wall": self.spec.limits.wall}
            request = {"op": "adopt", "directories": directories(self.spec), **details, **self._disk.message()}
            ask(self._zygote.socket, request, [self._pidfd])
        except Refused as error:
            if error.errno not in _UNABLE:
                raise
            raise NoOverlayError(
                f"the container cannot be given an overlay ({error.strerror}); Linux 6.15 and later can. "
                "Use DockerBackend(fork='commit')"
            ) from error

    def _container_files(self) -> Image:
        """The image of the daemon, as the container shows it."""
        self._bottom = ask(self._zygote.socket, {"op": "root"}, [self._pidfd])[1][0]
        path = f"/proc/{os.getpid()}/fd/{self._bottom}"
        return Image(self._base.ref, {"root": [path], "usr": [f"{path}/usr"]})

    def usage(self) -> Usage:
        """See ``Sandbox.usage``."""
        return replace(super().usage(), disk_bytes=self._disk.used())

    def _siblings(self, frozen: Frozen, count: int) -> Sequence[Sandbox]:
        children = start_all(lambda: OverlaySandbox(self._host, self.spec, frozen, self._base), count)
        self._host.spares.keep(self._container.config, count)
        return children

    def _discard(self) -> None:
        super()._discard()
        if hasattr(self, "_disk"):
            cleanup.later(self._disk.release)
        if self._bottom >= 0:
            cleanup.later(lambda: os.close(self._bottom))  # after a merge of layers that looks at it
