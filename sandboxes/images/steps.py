"""What each kind of step does: fetch outside what it needs, then install it in a sandbox without a network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from forkgym.sandboxes.base import Sandbox
from forkgym.sandboxes.errors import ImageError, SandboxFileError
from forkgym.sandboxes.images import downloads
from forkgym.sandboxes.images.recipe import Step

DELIVERY = "/mnt"  # where a step finds what was fetched for it: every image has this directory
_PATIENCE = 3600.0  # seconds
_TAIL = 15  # lines of a failed command's output
_STATUS = "/var/lib/dpkg/status"
# A package that another wants ready before it is unpacked may come later in the alphabet: the next round takes it.
INSTALL = f"""dpkg() {{ command dpkg --force-unsafe-io --force-confnew "$@"; }}
install() {{
  for round in 1 2 3 4; do
    dpkg --skip-same-version "$@" --install {DELIVERY}/*.deb && dpkg --configure --pending && return
    dpkg --configure --pending || true
  done
  return 1
}}
"""

_PIP = """set -e
export PIP_BREAK_SYSTEM_PACKAGES=1 PIP_ROOT_USER_ACTION=ignore PIP_NO_CACHE_DIR=1
export PIP_USER=0  # fail rather than install for root only
pip=$(echo {delivery}/pip-*.whl)
python3 "$pip/pip" install --quiet --disable-pip-version-check --no-index --find-links={delivery} "$@"
"""
_NPM = """set -e
cache=$(mktemp -d)
trap 'rm -rf "$cache"' EXIT
cp -r {delivery}/npm/. "$cache"
npm install --global --offline --no-audit --no-fund --loglevel=error --cache="$cache" "$@"
"""
_COPY = (
    "tar --extract --file={delivery}/files.tar --directory=/ --same-owner --keep-directory-symlink --no-overwrite-dir"
)


def perform(step: Step, box: Sandbox, delivery: Path) -> None:
    """Do one step in ``box``, which shows the host's directory ``delivery`` read-only. Raises ``SandboxError``."""
    if isinstance(step.value, str):
        command(box, ["bash", "-c", step.value])
        return
    if step.kind == "copy":
        command(box, _COPY.format(delivery=DELIVERY).split())
        return
    packages = [package for package in step.value if isinstance(package, str)]
    _INSTALLERS[step.kind](packages, box, delivery)


def open_up(folder: Path) -> None:
    """Let everybody read: inside, files of the host's root belong to nobody."""
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            mode = path.stat().st_mode
            path.chmod(0o755 if path.is_dir() or mode & 0o100 else 0o644)


def command(box: Sandbox, words: Sequence[str]) -> str:
    """Run a command of a step; its output. Raises ``ImageError`` with the last lines if it fails."""
    done = box.exec(words, timeout=_PATIENCE, cwd="/")
    if done.ok:
        return done.stdout.decode(errors="replace")
    said = (done.stdout + done.stderr).decode(errors="replace").strip().splitlines()[-_TAIL:]
    how = f"did not end within {_PATIENCE:g} s" if done.timed_out else f"ended with exit code {done.exit_code}"
    raise ImageError("\n".join([f"the command {how}", *said]))


def _apt(packages: Sequence[str], box: Sandbox, delivery: Path) -> None:
    try:
        status = box.read_file(_STATUS)
    except SandboxFileError as error:
        raise ImageError("the image below has no Debian packages; begin the recipe with `from: debian`") from error
    listed = delivery / "status"
    listed.write_bytes(status)
    downloads.debian(packages, listed, delivery)
    open_up(delivery)
    if any(delivery.glob("*.deb")):
        command(box, ["bash", "-c", f"{INSTALL} install"])


def _pip(packages: Sequence[str], box: Sandbox, delivery: Path) -> None:
    ask = "import sys; print('%d.%d' % sys.version_info[:2])"
    python = command(box, ["python3", "-c", ask]).strip()
    downloads.wheels(packages, python, delivery)
    open_up(delivery)
    command(box, ["bash", "-c", _PIP.format(delivery=DELIVERY), "pip", *packages])


def _npm(packages: Sequence[str], box: Sandbox, delivery: Path) -> None:
    command(box, ["npm", "--version"])
    registry = downloads.npm_cache(packages, delivery / "npm", delivery / "modules")
    open_up(delivery)
    words = [f"--registry={registry}", *packages]  # the cache knows packages by their address
    command(box, ["bash", "-c", _NPM.format(delivery=DELIVERY), "npm", *words])


_INSTALLERS: dict[str, Callable[[Sequence[str], Sandbox, Path], None]] = {"apt": _apt, "pip": _pip, "npm": _npm}
