"""Go modules and Rust packages that need no other one: nothing is fetched, and the image must have the compiler."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from forkgym.sandboxes.base import Sandbox
from forkgym.tasks.builders.history import UnfitCommit
from forkgym.tasks.builders.language import COLLECT_TIMEOUT, Environment, Files, uncollected

_GO = {"GOFLAGS": "", "GOPROXY": "off", "GOWORK": "off", "GOTOOLCHAIN": "local"}
# Outside of the working directory: what is built there is no work of the agent, and too large to compare.
_RUST = {"CARGO_TARGET_DIR": "/tmp/target", "CARGO_NET_OFFLINE": "true", "CARGO_TERM_COLOR": "never"}
_DEPENDENCIES = ("dependencies", "dev-dependencies", "build-dependencies")


class Go:
    """Modules that require no other module."""

    language, runner = "Go", "go test"

    def owns(self, files: Files) -> bool:
        return "go.mod" in files

    def is_test(self, path: str) -> bool:
        return path.endswith("_test.go") or "testdata" in path.split("/")[:-1]

    def is_source(self, path: str) -> bool:
        return path.endswith(".go")

    def runnable(self, path: str) -> bool:
        return path.endswith("_test.go") and "testdata" not in path.split("/")

    def environments(self, files: Files, version: str) -> Iterator[Environment]:
        if re.search(r"^require\b", (files["go.mod"].data or b"").decode(errors="replace"), re.MULTILINE):
            raise UnfitCommit("environment cannot be built", "go.mod requires other modules, and those are not fetched")
        yield Environment()

    def collect(self, box: Sandbox, workdir: str, paths: Sequence[str]) -> list[str]:
        packages = sorted({f"./{path.rpartition('/')[0]}" for path in paths})
        command = ("go", "test", "-json", "-count=1", *packages)
        result = box.exec(command, cwd=workdir, env=_GO, timeout=2 * COLLECT_TIMEOUT, max_output=None)
        found: dict[str, None] = {}
        for line in result.stdout.splitlines():
            event: dict[str, Any] = json.loads(line) if line.startswith(b"{") else {}
            if "Test" in event and event.get("Action") in ("pass", "fail", "skip"):
                found[f"{event['Package']}::{event['Test']}"] = None
        if not found:
            raise uncollected(result)
        return list(found)


class Rust:
    """Packages that depend on no other one, or hold all of them in ``vendor``; tests of the files of ``tests/``."""

    language, runner = "Rust", "cargo test"

    def owns(self, files: Files) -> bool:
        return "Cargo.toml" in files

    def is_test(self, path: str) -> bool:
        return bool({"tests", "benches"} & set(path.split("/")[:-1]))

    def is_source(self, path: str) -> bool:
        return path.endswith(".rs") and path != "build.rs"

    def runnable(self, path: str) -> bool:
        return _target(path) != ""

    def environments(self, files: Files, version: str) -> Iterator[Environment]:
        try:
            manifest = tomllib.loads((files["Cargo.toml"].data or b"").decode(errors="replace"))
        except tomllib.TOMLDecodeError:
            raise UnfitCommit("environment cannot be built", "Cargo.toml cannot be read") from None
        if "package" not in manifest:
            raise UnfitCommit("environment cannot be built", "Cargo.toml holds no package, only a workspace of others")
        if (needed := _foreign(manifest)) and not any(path.startswith("vendor/") for path in files):
            problem = f"Cargo.toml depends on {', '.join(needed[:5])}, and dependencies are not fetched"
            raise UnfitCommit("environment cannot be built", problem)
        yield Environment(env=_RUST)

    def collect(self, box: Sandbox, workdir: str, paths: Sequence[str]) -> list[str]:
        found: list[str] = []
        for target in dict.fromkeys(map(_target, paths)):
            command = ("cargo", "test", "--offline", "--quiet", "--test", target, "--", "--list", "--format", "terse")
            result = box.exec(command, cwd=workdir, env=_RUST, timeout=2 * COLLECT_TIMEOUT, max_output=None)
            names = re.findall(r"^(\S+): test$", result.stdout.decode(errors="replace"), re.MULTILINE)
            if not result.ok or not names:
                raise uncollected(result)
            found += [f"{target}::{name}" for name in names]
        return found


def _target(path: str) -> str:
    """The name of the test program that a file of the root's ``tests/`` is; empty for other files."""
    found = re.fullmatch(r"tests/([\w-]+)(?:\.rs|/main\.rs)", path)
    return found[1] if found else ""


def _foreign(manifest: Mapping[str, Any]) -> list[str]:
    """Dependencies that stand outside of the repository; optional ones count, as cargo asks for them."""
    tables: list[Any] = [manifest, *manifest.get("target", {}).values()]
    wanted = [(name, item) for table in tables for key in _DEPENDENCIES for name, item in table.get(key, {}).items()]
    return sorted({name for name, item in wanted if not (isinstance(item, dict) and "path" in item)})
