"""What is installed is what is in the checkout, and importing it costs and does nothing."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "forkgym"
ROOMS = {"agents", "envs", "sandboxes", "tasks", "trainers"}
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel, built without network by the backend that pyproject names."""
    folder = tmp_path_factory.mktemp("wheel")
    build = "from hatchling.build import build_wheel; import sys; print(build_wheel(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-P", "-c", build, str(folder)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return zipfile.ZipFile(folder / done.stdout.strip().splitlines()[-1])


def package_files() -> set[str]:
    """Every file of the package as git would ship it, by its path in the wheel."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *sorted(ROOMS), "src/forkgym"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    real = [name for name in listed if (ROOT / name).is_file() and not (ROOT / name).is_symlink()]
    return {f"forkgym/{name.removeprefix('src/forkgym/')}" for name in real}


def fresh(code: str, *flags: str) -> subprocess.CompletedProcess[str]:
    """Run ``code`` in a new interpreter, away from the checkout."""
    return subprocess.run(
        [sys.executable, *flags, "-c", code], cwd="/", capture_output=True, text=True, timeout=60, check=False
    )


def test_links_are_the_rooms() -> None:
    links = {path.name: path.readlink().as_posix() for path in PACKAGE.iterdir() if path.is_symlink()}
    assert links == {room: f"../../{room}" for room in ROOMS}


def test_every_list_in_pyproject_names_every_room() -> None:
    hatch = SETTINGS["tool"]["hatch"]["build"]["targets"]
    own = {path.name for path in PACKAGE.iterdir() if not path.is_symlink() and path.name != "__pycache__"}
    expected = ROOMS | {f"src/forkgym/{name}" for name in own}
    assert set(hatch["wheel"]["only-include"]) == expected
    assert set(hatch["sdist"]["only-include"]) == expected | {"tests"}
    assert hatch["wheel"]["sources"] == {"src/forkgym": "forkgym"} | {room: f"forkgym/{room}" for room in ROOMS}
    checked = set(SETTINGS["tool"]["pyright"]["include"])
    assert {f"src/forkgym/{room}" for room in ROOMS} <= checked
    assert {f"src/forkgym/{name}" for name in own if name != "py.typed"} <= checked


def test_wheel_holds_the_package(wheel: zipfile.ZipFile) -> None:
    names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert names == package_files()


def test_wheel_holds_the_task_library_as_it_is(wheel: zipfile.ZipFile) -> None:
    files = [path for path in (ROOT / "tasks" / "library").rglob("*") if path.is_file()]
    files = [path for path in files if "__pycache__" not in path.parts]
    assert sum(path.name == "task.yaml" for path in files) >= 12
    for path in files:
        assert wheel.read(f"forkgym/{path.relative_to(ROOT).as_posix()}") == path.read_bytes()


def test_wheel_declares_what_it_should(wheel: zipfile.ZipFile) -> None:
    info = {name.split("/")[1]: wheel.read(name).decode() for name in wheel.namelist() if ".dist-info/" in name}
    assert info["entry_points.txt"].split() == ["[console_scripts]", "forkgym", "=", "forkgym.cli.main:main"]
    meta = Parser().parsestr(info["METADATA"])
    assert meta["License-Expression"] == "Apache-2.0"
    extras = set(meta.get_all("Provides-Extra", []))
    assert extras == {"train", "swe", "docker", "mcp", "gateway", "vllm", "ray", "kernel", "cad", "web", "dev"}
    mandatory = [line for line in meta.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert len(mandatory) <= 6


def test_licence_is_apache() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text


def test_no_entry_point_for_gymnasium() -> None:
    assert set(SETTINGS["project"].get("entry-points", {})) == set()


def test_import_is_light_and_silent() -> None:
    heavy = [
        "torch",
        "transformers",
        "pydantic",
        "yaml",
        "rich",
        "typer",
        "forkgym.envs.core",
        "forkgym.sandboxes.base",
    ]
    done = fresh(f"import forkgym, sys; sys.stderr.write(repr([n for n in {heavy!r} if n in sys.modules]))")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "[]")


def test_import_registers_ids_as_strings() -> None:
    code = """
import forkgym, gymnasium, json
specs = {name: spec for name, spec in gymnasium.registry.items() if name.startswith("forkgym/")}
print(json.dumps({name: type(spec.entry_point).__name__ for name, spec in specs.items()}))
"""
    kinds = json.loads(fresh(code).stdout)
    assert "forkgym/SWE-v0" in kinds
    assert set(kinds.values()) == {"str"}


def test_import_touches_no_file() -> None:
    """No write of any kind: audited by the interpreter itself."""
    code = """
import sys, os
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
seen = []
def audit(event, args):
    if event == "open" and isinstance(args[2], int) and args[2] & WRITES: seen.append(args[0])
    if event in ("os.mkdir", "os.rename", "os.remove", "socket.connect", "subprocess.Popen"): seen.append(event)
import gymnasium
sys.addaudithook(audit)
import forkgym
print(seen)
"""
    done = fresh(code, "-B")
    assert done.stdout == "[]\n", done.stderr


def test_help_loads_no_engine() -> None:
    code = """
import sys
from forkgym.cli.main import main
code = main(["--help"])
sys.stderr.write(repr([code, "torch" in sys.modules, "forkgym.envs.core" in sys.modules]))
"""
    done = fresh(code)
    assert done.stderr == "[0, False, False]"
    assert "doctor" in done.stdout
