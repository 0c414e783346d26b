"""Codex CLI. OpenAI responses, streamed."""

from __future__ import annotations

import json
import platform

from forkgym.agents.harnesses.base import CPU, Harness, Launch, Place

_PACKAGE = "@openai/codex"
_CONFIG = """\
model = {model}
model_provider = "forkgym"
check_for_update_on_startup = false

[analytics]
enabled = false

[model_providers.forkgym]
name = "forkgym"
base_url = {url}
env_key = "FORKGYM_KEY"
wire_api = "responses"
"""


def _launch(place: Place) -> Launch:
    vendor = f"{place.root}/node_modules/{_PACKAGE}-linux-{CPU}/vendor/{platform.machine()}-unknown-linux-musl"
    config = _CONFIG.format(model=json.dumps(place.model), url=json.dumps(f"{place.url}/v1"))
    return Launch(
        argv=[
            f"{vendor}/bin/codex",
            *("exec", "--dangerously-bypass-approvals-and-sandbox", "--skip-git-repo-check", "--json", place.task),
        ],
        env={"FORKGYM_KEY": place.key},
        files={f"{place.home}/.codex/config.toml": config},
    )


HARNESS = Harness(
    name="codex",
    manager="npm",
    packages=(f"{_PACKAGE}@0.171.0",),
    node=False,
    dialect="responses",
    launch=_launch,
    shell=lambda command: ("exec_command", {"cmd": command}),
    prompt_tokens=7000,
    licence="Apache-2.0",
)
