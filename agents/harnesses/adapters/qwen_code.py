"""Qwen Code: fifteen tools, a long prompt. Chat completions, streamed."""

from __future__ import annotations

import json

from forkgym.agents.harnesses.base import Harness, Launch, Place

_PACKAGE = "@qwen-code/qwen-code"
_SETTINGS = {
    "privacy": {"usageStatisticsEnabled": False},
    "telemetry": {"enabled": False},
    "general": {"enableAutoUpdate": False, "disableAutoUpdate": True, "disableUpdateNag": True},
    "memory": {"enableManagedAutoMemory": False, "enableManagedAutoDream": False},
}


def _launch(place: Place) -> Launch:
    program = f"{place.root}/node_modules/{_PACKAGE}/cli-entry.js"
    return Launch(
        argv=[*place.node, program, "--auth-type", "openai", "-y", "-p", place.task],
        env={
            "OPENAI_BASE_URL": f"{place.url}/v1",
            "OPENAI_API_KEY": place.key,
            "OPENAI_MODEL": place.model,
            "QWEN_CODE_DISABLE_AUTO_UPDATE": "1",
        },
        files={f"{place.home}/.qwen/settings.json": json.dumps(_SETTINGS)},
    )


HARNESS = Harness(
    name="qwen-code",
    manager="npm",
    packages=(f"{_PACKAGE}@0.24.4",),
    dialect="chat",
    launch=_launch,
    shell=lambda command: ("run_shell_command", {"command": command, "is_background": False}),
    prompt_tokens=18000,
    licence="Apache-2.0",
)
