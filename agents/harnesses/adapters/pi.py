"""pi: four tools and a short prompt. Chat completions, streamed."""

from __future__ import annotations

import json

from forkgym.agents.harnesses.base import Harness, Launch, Place

_PACKAGE = "@mariozechner/pi-coding-agent"


def _launch(place: Place) -> Launch:
    model = {"id": place.model, "reasoning": False, "input": ["text"]}
    provider = {
        "baseUrl": f"{place.url}/v1",
        "api": "openai-completions",
        "apiKey": place.key,
        "models": [model],
    }
    program = f"{place.root}/node_modules/{_PACKAGE}/dist/cli.js"
    return Launch(
        argv=[*place.node, program, "--provider", "forkgym", "--model", place.model, "-p", place.task],
        env={"PI_OFFLINE": "1", "PI_SKIP_VERSION_CHECK": "1", "PI_TELEMETRY": "0"},
        files={f"{place.home}/.pi/agent/models.json": json.dumps({"providers": {"forkgym": provider}})},
    )


HARNESS = Harness(
    name="pi",
    manager="npm",
    packages=(f"{_PACKAGE}@0.73.1",),
    dialect="chat",
    launch=_launch,
    shell=lambda command: ("bash", {"command": command}),
    prompt_tokens=1600,
    licence="MIT",
)
