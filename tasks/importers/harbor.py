"""Harbor's task directories as tasks, and tasks as such directories.

``task.toml``, ``instruction.md``, ``environment/``, ``tests/``, ``solution/``. What has no place in a task is carried
along byte for byte in its ``origin``, so that the way back loses nothing.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forkgym.sandboxes.base import Limits, StrPath
from forkgym.sandboxes.limits import parse_limits
from forkgym.tasks.base import Budget, Grading, Task
from forkgym.tasks.errors import TaskFormatError
from forkgym.tasks.folder import IGNORED_DIRECTORIES, read_tree
from forkgym.tasks.importers import dockerfile
from forkgym.tasks.importers.harbor_config import CONFIG, HarborConfig, read_config, refusals
from forkgym.tasks.importers.harbor_runner import TEST, TESTS
from forkgym.tasks.taskset import Entry, TaskSet

INSTRUCTION = "instruction.md"
DOCKERFILE = "environment/Dockerfile"
OURS = "forkgym"  # our table in a task's [metadata]
_CANARY = re.compile(r"(<!--.*canary.*-->|#.*canary.*)", re.IGNORECASE)
_LOGS = "mkdir -p /logs/agent /logs/artifacts"
_NO_SOLUTION = "echo 'the task has no solution/solve.sh' >&2; exit 1"


@dataclass(frozen=True)
class _Options:
    image: str | None
    offline: bool
    split: str


def from_harbor(directory: StrPath, *, image: str | None = None, offline: bool = False, split: str = "test") -> TaskSet:
    """The task directory, or all below a folder, as tasks with the runner ``harbor``.

    A task works in its own Docker image: ``docker_image``, or the one that ``harbor_images.build`` makes of its
    Dockerfile. With ``image`` it works in that image of ours, and the Dockerfile is followed as far as that goes
    without Docker. ``offline`` takes tasks that ask for a network, though they get none.

    Raises ``TaskFormatError`` for a malformed ``task.toml``; a task that cannot run here as it is meant raises it, with
    every reason, when it is taken out of the set.
    """
    root = Path(directory)
    options = _Options(image, offline, split)
    entries: dict[str, Entry] = {}
    for path in _directories(root):
        config = read_config(path / CONFIG)
        entry = _entry(path, config, options)
        if entry.id in entries:
            raise TaskFormatError(f"{path / CONFIG}: a second task with the id {entry.id!r}")
        entries[entry.id] = entry
    if not entries:
        raise TaskFormatError(f"no {CONFIG} in {root} or below; give a Harbor task directory, or a folder of some")
    return TaskSet(entries.values())


def image_tag(task_id: str, context: Mapping[str, bytes]) -> str:
    """The tag of the image built from this ``environment/``: another content has another tag."""
    digest = hashlib.sha256()
    for path in sorted(context):
        digest.update(f"{len(path)}:{path}{len(context[path])}:".encode("utf-8", "surrogateescape") + context[path])
    return f"forkgym-harbor/{task_id.replace('/', '-')}:{digest.hexdigest()[:12]}"


def context_of(origin: Mapping[str, bytes]) -> dict[str, bytes]:
    """The build context among a task's carried files: path below ``environment/`` to bytes."""
    return {path.removeprefix("environment/"): data for path, data in origin.items() if path.startswith("environment/")}


def _directories(root: Path) -> list[Path]:
    found: list[Path] = []
    for folder, names, present in os.walk(root):
        if CONFIG in present:
            found.append(Path(folder))
            names.clear()
        names[:] = sorted(name for name in names if name not in IGNORED_DIRECTORIES)
    return found


def _entry(path: Path, config: HarborConfig, options: _Options) -> Entry:
    ours: dict[str, Any] = config.metadata.get(OURS) or {}
    task_id = str(ours.get("id") or slug(str(config.task.get("name") or path.resolve().name)))
    split = str(ours.get("split") or options.split)
    return Entry(task_id, split, lambda: _task(path, config, task_id, split, ours, options))


def slug(name: str) -> str:
    """The name as a task id: lower case, and a dash for each run of other characters."""
    parts = [re.sub(r"[^a-z0-9._-]+", "-", part).strip("-._") for part in name.lower().split("/")]
    return "/".join(part for part in parts if part) or "task"


def _task(
    path: Path, config: HarborConfig, task_id: str, split: str, ours: Mapping[str, Any], options: _Options
) -> Task:
    inside = read_tree(path)
    tests, solution, origin = _parted(path, inside)
    reasons = [*refusals(config, offline=options.offline), *_missing(path, config, inside, options)]
    if reasons:
        raise TaskFormatError(f"{path / CONFIG}: {'; '.join(reasons)}")
    workdir = _workdir(path, config, origin)
    files: dict[str, bytes] = {}
    setup: list[str] = [_LOGS]
    env = dict(config.environment.env)
    if options.image is not None and DOCKERFILE in origin:
        context = context_of(origin)
        name = str(path / DOCKERFILE)
        plan = dockerfile.follow(origin[DOCKERFILE].decode("utf-8", "replace"), name, context, workdir)
        files = {target: context[source] for target, source in plan.files.items()}
        setup += plan.setup
        env = plan.env | env
    return Task(
        id=task_id,
        family=str(ours.get("family") or "harbor"),
        instruction=shown_instruction(str(path / INSTRUCTION), inside[INSTRUCTION]),
        split=split,
        files=files,
        hidden={f"{TESTS}/{name}": data for name, data in tests.items()},
        oracle=dict(solution),
        solve=_solve(config) if "solve.sh" in solution else _NO_SOLUTION,
        grading=Grading("harbor", (TEST,), config.verifier.timeout_sec, _grading_options(config)),
        image=options.image or config.environment.docker_image or image_tag(task_id, context_of(origin)),
        workdir=workdir,
        setup=tuple(setup),
        user="root",
        env=env,
        submits="everything",
        limits=_limits(config),
        budget=Budget(turns=100, seconds=config.agent.timeout_sec or 3600.0),
        license=str(ours.get("license") or config.metadata.get("license") or "not stated"),
        source=str(ours.get("source") or config.source or f"Harbor task {config.task.get('name') or path.name}"),
        origin=origin,
        executables=tuple(sorted(name for name, data in files.items() if data.startswith(b"#!"))),
    )


def _parted(path: Path, inside: Mapping[str, bytes]) -> tuple[dict[str, bytes], dict[str, bytes], dict[str, bytes]]:
    """The files of tests/, of solution/, and all others."""
    parts: dict[str, dict[str, bytes]] = {"tests": {}, "solution": {}, "": {}}
    for name, data in inside.items():
        top, _, rest = name.partition("/")
        if rest and top in ("tests", "solution"):
            parts[top][rest] = data
        else:
            parts[""][name] = data
    if ignored := next((name for name in inside if name.endswith(".harborignore")), None):
        raise TaskFormatError(f"{path / ignored}: rules that leave out files are not followed here; remove those files")
    return parts["tests"], parts["solution"], parts[""]


def _missing(path: Path, config: HarborConfig, inside: Mapping[str, bytes], options: _Options) -> list[str]:
    """What the directory lacks, or has too much of."""
    found = [f"{name}: this file is missing" for name in (INSTRUCTION, "tests/test.sh") if name not in inside]
    if DOCKERFILE not in inside and not config.environment.docker_image:
        found.append(f"{DOCKERFILE}: this file is missing, and environment.docker_image names no image")
    if any(name.startswith("environment/") and "compose" in name.rpartition("/")[2] for name in inside):
        found.append("environment: services of docker compose cannot run here")
    if config.separate and any(name in inside for name in ("tests/Dockerfile", "tests/docker-compose.yaml")):
        found.append("tests/Dockerfile: tests run in a fresh copy of the agent's image here, not in one of their own")
    if options.image is not None and config.environment.docker_image and DOCKERFILE not in inside:
        found.append(f"environment.docker_image: no Dockerfile tells how {options.image!r} could stand in for it")
    return found


def _workdir(path: Path, config: HarborConfig, origin: Mapping[str, bytes]) -> str:
    said = dockerfile.workdir(origin.get(DOCKERFILE, b"").decode("utf-8", "replace"))
    found = config.environment.workdir or said
    if found is None or found == "/" or not re.fullmatch(r"(/[\w.+-]+)+", found) or ".." in found.split("/"):
        raise TaskFormatError(f"{path / CONFIG}: environment.workdir: name a directory such as /app, not {found!r}")
    return found


def shown_instruction(name: str, data: bytes) -> str:
    """What an agent reads: without the lines at the top that mark where a text comes from. ``name`` is the file's."""
    try:
        lines = data.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise TaskFormatError(f"{name}: not UTF-8 text: {error}") from error
    while lines and (_CANARY.fullmatch(lines[0].strip()) or not lines[0].strip()):
        lines.pop(0)
    if not lines:
        raise TaskFormatError(f"{name}: says nothing")
    return "\n".join(lines).strip()


def _solve(config: HarborConfig) -> str:
    words = [f"{name}={value}" for name, value in config.solution.env.items()]
    return f"{_LOGS} && chmod +x /solution/solve.sh && exec {shlex.join(['env', *words, '/solution/solve.sh'])}"


def _grading_options(config: HarborConfig) -> dict[str, Any]:
    options: dict[str, Any] = {"env": dict(config.verifier.env)} if config.verifier.env else {}
    return options | ({"artifacts": list(config.shown)} if config.separate else {})


def _limits(config: HarborConfig) -> Limits:
    environment = config.environment
    memory = f"{environment.memory_mb}M" if environment.memory_mb else environment.memory
    disk = f"{environment.storage_mb}M" if environment.storage_mb else environment.storage
    wanted = {"memory": memory or "4G", "disk": disk or "10G", "pids": 4096, "open_files": 65536}
    return parse_limits(wanted | ({"cpu": environment.cpus} if environment.cpus else {}))
