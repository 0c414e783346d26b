"""What may stand in a Harbor ``task.toml`` (schema 1.x), and which of it can be honoured here.

Keys that only describe (``task``, ``metadata``, build times) are carried along. A key that changes what an agent or a
grader gets, and that a sandbox here cannot give, is refused by name.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from forkgym.tasks.errors import TaskFormatError

CONFIG = "task.toml"
ROOT_USERS = (None, "root", 0, "0")
ARTIFACTS = "/logs/artifacts"


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Network(_Section):
    network_mode: Literal["no-network", "public", "allowlist"] | None = None
    allowed_hosts: list[str] | None = None


class Agent(_Network):
    timeout_sec: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    user: str | int | None = None


class Verifier(_Network):
    timeout_sec: float = Field(default=600.0, gt=0, allow_inf_nan=False)
    env: dict[str, str] = {}
    user: str | int | None = None
    environment_mode: Literal["shared", "separate"] | None = None
    environment: dict[str, Any] | None = None
    collect: list[Any] = []


class Environment(_Network):
    build_timeout_sec: float = Field(default=600.0, gt=0)
    docker_image: str | None = None
    os: str = "linux"
    cpus: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    memory_mb: int | None = Field(default=None, gt=0)
    memory: str | None = None
    storage_mb: int | None = Field(default=None, gt=0)
    storage: str | None = None
    gpus: int | None = None
    gpu_types: list[str] | None = None
    tpu: dict[str, Any] | None = None
    mcp_servers: list[Any] = []
    env: dict[str, str] = {}
    skills_dir: str | None = None
    healthcheck: dict[str, Any] | None = None
    workdir: str | None = None
    allow_internet: bool | None = None


class Solution(_Section):
    env: dict[str, str] = {}


class HarborConfig(_Section):
    """A ``task.toml``. ``version`` is the old name of ``schema_version``."""

    schema_version: str | None = None
    version: str | None = None
    task: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    verifier: Verifier = Verifier()
    agent: Agent = Agent()
    environment: Environment = Environment()
    solution: Solution = Solution()
    source: str | None = None
    multi_step_reward_strategy: str | None = None
    steps: list[Any] | None = None
    artifacts: list[str | dict[str, Any]] = []

    @property
    def separate(self) -> bool:
        """Whether the tests run in an environment of their own, which gets the artifacts and nothing else."""
        mode = self.verifier.environment_mode
        return mode == "separate" or (mode is None and self.verifier.environment is not None)

    @property
    def shown(self) -> tuple[str, ...]:
        """What tests in an environment of their own get to see: paths of artifacts."""
        return tuple(item if isinstance(item, str) else str(item.get("source", "")) for item in self.artifacts)


def read_config(path: Path) -> HarborConfig:
    """The config in ``path``. Raises ``TaskFormatError`` naming the file and the line or the key."""
    try:
        data = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise TaskFormatError(f"{path}: not a readable TOML file: {error}") from error
    try:
        config = HarborConfig.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        unknown = first["type"] == "extra_forbidden"
        what = "this key is not known, so it could not be honoured" if unknown else str(first["msg"]).lower()
        raise TaskFormatError(f"{path}: {key}: {what}") from error
    if (schema := config.schema_version or config.version or "1.0").split(".")[0] != "1":
        raise TaskFormatError(f"{path}: schema_version: {schema!r}; versions 1.x are read")
    return config


def refusals(config: HarborConfig, *, offline: bool) -> Iterator[str]:
    """Why this task cannot run here as it is meant, one sentence each, beginning with the key."""
    environment, verifier = config.environment, config.verifier
    absent: dict[str, Any] = {
        "steps": config.steps,
        "environment.gpus": environment.gpus,
        "environment.tpu": environment.tpu,
        "environment.mcp_servers": environment.mcp_servers,
        "environment.skills_dir": environment.skills_dir,
        "environment.healthcheck": environment.healthcheck,
        "verifier.environment": verifier.environment,
        "verifier.collect": verifier.collect,
    }
    yield from (f"{key}: a sandbox here has no such thing" for key, value in absent.items() if value)
    if environment.os.lower() != "linux":
        yield f"environment.os: sandboxes run linux, not {environment.os!r}"
    for key, user in (("agent.user", config.agent.user), ("verifier.user", verifier.user)):
        if user not in ROOT_USERS:
            yield f"{key}: imported tasks run as root, not as {user!r}"
    yield from _network(config, offline)
    yield from _artifacts(config)
    given = {"environment.env": environment.env, "verifier.env": verifier.env, "solution.env": config.solution.env}
    for key, values in given.items():
        yield from (f"{key}.{name}: takes its value from the host" for name, value in values.items() if "${" in value)


def _network(config: HarborConfig, offline: bool) -> Iterator[str]:
    environment = config.environment
    asked: dict[str, str | None] = {
        "environment.network_mode": environment.network_mode,
        "agent.network_mode": config.agent.network_mode,
        "verifier.network_mode": config.verifier.network_mode,
        "environment.allow_internet": "public" if environment.allow_internet else None,
    }
    for key, mode in asked.items():
        if mode not in (None, "no-network") and not offline:
            yield f"{key}: sandboxes have no network; import with offline to try without"


def _artifacts(config: HarborConfig) -> Iterator[str]:
    for item in config.artifacts:
        if isinstance(item, dict) and (item.get("exclude") or item.get("service") not in (None, "main")):
            yield "artifacts: exclude and service cannot be honoured"
        path = item if isinstance(item, str) else str(item.get("source", ""))
        if config.separate and (not path.startswith("/") or ".." in path.split("/")):
            yield f"artifacts: {path!r}: must be an absolute path"
