"""What a sandbox's root file system is made of: a built image's layers, or the image "host".

"host" is this machine's own system directories, read-only, without anything private. ``/usr`` is the host's. Everything
else is a small skeleton of our own: empty directories, the links of a merged /usr, and those files of ``/etc`` that are
on a list, because an allow-list cannot leak what nobody thought of.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import stat
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from forkgym.sandboxes.errors import ImageError
from forkgym.sandboxes.images.store import Chain, open_store
from forkgym.sandboxes.local.launcher import is_privileged
from forkgym.sandboxes.owner.environment import USERS

HOST = "host"
_LAYOUT = 3  # part of the key: raise it when the skeleton changes
_MERGED = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_DIRECTORIES = {
    **dict.fromkeys(("boot", "dev", "etc", "home", "media", "mnt", "opt", "proc", "run", "srv", "sys", "usr"), 0o755),
    **dict.fromkeys(("var", "var/cache", "var/lib", "var/log", "var/spool"), 0o755),
    **dict.fromkeys(("tmp", "var/tmp", "run/lock"), 0o1777),
    "root": 0o700,
    "home/agent": 0o755,
}
# Rootless, a directory of the host's /usr belongs to nobody. These of our own lie above, so that root inside can
# install programs on either tier.
_USR_DIRECTORIES = ("local", "local/bin", "local/include", "local/lib", "local/sbin", "local/share")
_USR_PACKAGES = ("local/lib/python3*", "local/lib/python3*/*-packages", "local/lib/node_modules")
_ETC = (
    *("alternatives", "bash.bashrc", "bash_completion.d", "ca-certificates", "ca-certificates.conf", "debian_version"),
    *("dconf", "default/locale", "ethertypes", "fonts", "gai.conf", "ghostscript", "gtk-2.0", "gtk-3.0", "host.conf"),
    *("ImageMagick-6", "ImageMagick-7", "inputrc", "issue", "issue.net", "java-11-openjdk", "java-17-openjdk"),
    *("java-21-openjdk", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "locale.alias", "locale.conf", "localtime"),
    *("login.defs", "lsb-release", "magic", "magic.mime", "manpath.config", "mime.types", "OpenCL", "os-release"),
    *("papersize", "perl", "pki/tls/certs", "protocols", "python3", "python3.10", "python3.11", "python3.12"),
    *("python3.13", "redhat-release", "rpc", "services", "shells", "skel", "ssl/certs", "ssl/openssl.cnf", "terminfo"),
    *("timezone", "vim", "vulkan", "X11", "xdg"),
)
_OWN_ETC = {
    "passwd": "root:x:0:0:root:/root:/bin/bash\n"
    "agent:x:1000:1000:agent:/home/agent:/bin/bash\n"
    "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    "group": "root:x:0:\ntty:x:5:\nagent:x:1000:\nnogroup:x:65534:\n",
    "hostname": "sandbox\n",
    "hosts": "127.0.0.1 localhost\n::1 localhost\n127.0.1.1 sandbox\n",
    "resolv.conf": "",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n",
    "profile": "PS1='$ '\n",
    "machine-id": "",
    "fstab": "",
}


@dataclass(frozen=True)
class Image:
    """Lower directories by volume, topmost first, and directories to bind read-only as (source, target).

    ``ref`` names this very image even when its name gets a newer one; ``layers`` are the ids that a lease must name.
    """

    ref: str
    lowers: dict[str, list[str]]
    binds: tuple[tuple[str, str], ...] = ()
    layers: tuple[str, ...] = ()

    def require(self) -> None:
        """From a lease on nobody removes the layers, but they may have been removed just before. ``ImageError``."""
        for path in (path for volume in self.lowers.values() for path in volume):
            if not os.path.isdir(path):
                raise ImageError(f"the image {self.ref!r} was removed meanwhile ({path}); build it again")


def load(ref: str, state: Path) -> Image:
    """The image of this name or ``name@id``. "host" is prepared below ``state`` if need be. Raises ``ImageError``."""
    if ref == HOST:
        return _host(state)
    try:
        store = open_store(state)
    except OSError as error:
        raise ImageError(f"no place for the images of {state}: {error}") from error
    chain = store.find(ref)
    store.touch(chain.layers[0].id)
    return _stacked(chain, _host(state) if chain.host else Image("", {volume: [] for volume in ("root", "usr")}))


def _stacked(chain: Chain, bottom: Image) -> Image:
    if chain.host and chain.host not in bottom.layers:
        raise ImageError(
            f"the image {chain.name!r} stands on this machine's system as it was before a change to it; "
            f"build it again: forkgym images build RECIPE, where RECIPE is the file that it was made from"
        )
    plain = [layer for layer in chain.layers if layer.target is None]
    lowers = {volume: [*(str(layer.path / volume) for layer in plain), *low] for volume, low in bottom.lowers.items()}
    tools = tuple((str(layer.path / "tool"), layer.target) for layer in reversed(chain.layers) if layer.target)
    layers = (*(layer.id for layer in chain.layers), *bottom.layers)
    return Image(chain.ref, lowers, (*bottom.binds, *tools), layers)


def host_id() -> str:
    """The name of the image "host" in its present state."""
    return f"host-{_fingerprint()}"


def _host(state: Path) -> Image:
    root = state / "images"
    path = root / host_id()
    if not path.is_dir():
        root.mkdir(mode=0o700, exist_ok=True)
        scratch = root / f".{uuid.uuid4().hex}"
        try:
            _build(scratch)
            scratch.rename(path)
        except OSError as error:
            shutil.rmtree(scratch, ignore_errors=True)
            if not path.is_dir():
                raise ImageError(f"cannot prepare the image 'host' in {root}: {error}") from error
    unmerged = [f"/{name}" for name in _MERGED if os.path.isdir(f"/{name}") and not os.path.islink(f"/{name}")]
    lowers = {"root": [str(path / "root")], "usr": [str(path / "usr"), "/usr"]}
    return Image(HOST, lowers, tuple((place, place) for place in unmerged), (path.name,))


@functools.cache
def _fingerprint() -> str:
    """Differs between processes that start before and after a change to a file that the skeleton copies."""
    parts = (_LAYOUT, os.geteuid(), is_privileged(), _ETC, _OWN_ETC, _usr_directories())
    digest = hashlib.sha256(repr(parts).encode())
    for relative, status in _host_files():
        digest.update(repr((relative, status.st_mode, status.st_size, status.st_mtime_ns)).encode())
    return digest.hexdigest()[:16]


def _build(target: Path) -> None:
    root, usr = target / "root", target / "usr"
    root.mkdir(parents=True)
    for relative, mode in _DIRECTORIES.items():
        (root / relative).mkdir()
        (root / relative).chmod(mode)
    for name in _MERGED:
        if os.path.islink(f"/{name}"):
            (root / name).symlink_to(os.readlink(f"/{name}"))
        elif os.path.isdir(f"/{name}"):
            (root / name).mkdir()
    (root / "var/run").symlink_to("/run")
    (root / "etc/mtab").symlink_to("/proc/mounts")
    # Rootless, these files belong to the agent, since there is one id for all; so nobody may write them by default.
    mask = 0o755 if is_privileged() else 0o555
    for relative, status in _host_files():
        _copy(Path("/etc", relative), root / "etc" / relative, status, mask)
    for name, text in _OWN_ETC.items():
        (root / "etc" / name).write_text(text)
        (root / "etc" / name).chmod(0o644 & mask)
    for relative in ("", *_usr_directories()):
        (usr / relative).mkdir()
    # The caller's umask must not decide who can read them.
    for folder in (root, *(Path(folder) for folder, _, _ in os.walk(root / "etc")), *(usr, *usr.rglob("*"))):
        folder.chmod(0o755)
    if is_privileged():
        os.chown(root / "home/agent", *USERS["agent"][:2])


def _usr_directories() -> tuple[str, ...]:
    """Those of our own below /usr, each after the one above it; those for packages, if the host has them."""
    found = sorted(path for pattern in _USR_PACKAGES for path in Path("/usr").glob(pattern))
    packages = (str(path.relative_to("/usr")) for path in found if path.is_dir() and path.resolve() == path)
    return (*_USR_DIRECTORIES, *packages)


def _host_files() -> Iterator[tuple[str, os.stat_result]]:
    """Listed files of the host's /etc that everybody may read, as (path below /etc, status)."""
    for name in _ETC:
        top = Path("/etc", name)
        if top.is_dir() and not top.is_symlink():
            found = sorted(Path(folder, file) for folder, _, files in os.walk(top) for file in files)
        else:
            found = [top]
        for path in found:
            try:
                status = path.lstat()
            except OSError:
                continue
            public = stat.S_ISREG(status.st_mode) and status.st_mode & stat.S_IROTH
            if public or stat.S_ISLNK(status.st_mode):
                yield str(path.relative_to("/etc")), status


def _copy(source: Path, target: Path, status: os.stat_result, mask: int) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if stat.S_ISLNK(status.st_mode):
        target.symlink_to(os.readlink(source))
        return
    try:
        shutil.copyfile(source, target)
    except PermissionError:
        return  # a directory above is closed to us
    target.chmod(stat.S_IMODE(status.st_mode) & mask)
