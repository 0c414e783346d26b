"""The local backend: sandboxes of Linux namespaces and overlay layers, without a daemon."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace

from forkgym.sandboxes import state
from forkgym.sandboxes.base import Capabilities, Limits, SandboxSpec, Snapshot
from forkgym.sandboxes.images.store import open_store
from forkgym.sandboxes.local import cgroups, cleanup, launcher, snapshots
from forkgym.sandboxes.local.image import HOST
from forkgym.sandboxes.local.sandbox import LocalSandbox, start_all
from forkgym.sandboxes.local.snapshots import Frozen

_NOTES = (
    "a fork copies files and each shell's cwd, variables, functions and aliases; "
    "not running processes, /dev/shm or sockets",
    "where the state directory lies on a tmpfs, files that a sandbox writes count towards its memory",
)
_ROOTLESS_NOTES = (
    "one user of the host serves all users inside: root inside may add files to system directories, "
    "but not change those of the host's /usr",
    "directories of the image, or from before the last fork or snapshot, cannot be renamed (EXDEV; mv copies them)",
)


class LocalBackend:
    """See ``forkgym.sandboxes.base.Backend``."""

    name = "local"
    _swept = False
    _sweeping = threading.Lock()

    def create(self, spec: SandboxSpec, snapshot: str | None = None) -> LocalSandbox:
        """See ``Backend.create``."""
        self._sweep_once()
        origin = Frozen()
        if snapshot is not None:
            origin = snapshots.load(state.state_dir(), snapshot, self.name)
            spec = replace(spec, image=origin.image)
        return start_all(spec, origin, 1)[0]

    def capabilities(self) -> Capabilities:
        """See ``Backend.capabilities``. Starts a sandbox to know."""
        self.create(SandboxSpec()).close()
        privileged = launcher.zygote().privileged
        enforced, missing = cgroups.describe(Limits(cpu=1.0, wall=1.0))
        return Capabilities(
            backend=self.name,
            tier="root" if privileged else "rootless",
            isolation="namespaces",
            fork=True,
            limits=enforced,
            unenforced=missing,
            notes=_NOTES if privileged else _NOTES + _ROOTLESS_NOTES,
            images=(HOST, *open_store(launcher.zygote().root).names()),
        )

    def snapshots(self) -> list[Snapshot]:
        """See ``Backend.snapshots``."""
        return snapshots.listed(state.state_dir(), self.name)

    def delete_snapshot(self, snapshot_id: str) -> None:
        """See ``Backend.delete_snapshot``."""
        snapshots.delete(state.state_dir(), snapshot_id, self.name)

    def gc(self) -> Mapping[str, int]:
        """See ``Backend.gc``."""
        cleanup.wait()
        root = state.state_dir()
        return {**state.reap(root), "cgroups": cgroups.reap(), "builds": open_store(root).sweep()}

    def _sweep_once(self) -> None:
        """What a crashed process left is removed in the background at the first start of the next."""
        with LocalBackend._sweeping:
            if not LocalBackend._swept:
                state.state_dir()  # if there is none, the caller is told, once
                LocalBackend._swept = True
                cleanup.later(lambda: self.gc_now())

    def gc_now(self) -> None:
        """``gc`` without waiting for the background."""
        state.reap(state.state_dir())
        cgroups.reap()
