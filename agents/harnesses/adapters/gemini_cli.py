"""Gemini CLI. Google's generateContent, streamed."""

from __future__ import annotations

import json

from forkgym.agents.harnesses.base import Harness, Launch, Place

_PACKAGE = "@google/gemini-cli"
_SETTINGS = {
    "privacy": {"usageStatisticsEnabled": False},
    "telemetry": {"enabled": False},
    "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
    "security": {"auth": {"selectedType": "gemini-api-key"}},
    "tools": {"useRipgrep": False},
}


def _launch(place: Place) -> Launch:
    program = f"{place.root}/node_modules/{_PACKAGE}/bundle/gemini.js"
    return Launch(
        argv=[*place.node, program, "--yolo", "--model", place.model, "--prompt", place.task],
        env={
            "GOOGLE_GEMINI_BASE_URL": place.url,
            "GEMINI_API_KEY": place.key,
            "GEMINI_CLI_TRUST_WORKSPACE": "true",
        },
        files={f"{place.home}/.gemini/settings.json": json.dumps(_SETTINGS)},
    )


HARNESS = Harness(
    name="gemini-cli",
    manager="npm",
    packages=(f"{_PACKAGE}@0.61.0",),
    dialect="gemini",
    launch=_launch,
    shell=lambda command: ("run_shell_command", {"command": command}),
    prompt_tokens=12000,
    licence="Apache-2.0",
)
