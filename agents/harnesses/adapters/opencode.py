"""OpenCode: ten tools; asks for a title first, in a call of its own. Chat completions, streamed."""

from __future__ import annotations

import json

from forkgym.agents.harnesses.base import CPU, Harness, Launch, Place


def _launch(place: Place) -> Launch:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{place.url}/v1", "apiKey": place.key},
        "models": {place.model: {"tool_call": True}},
    }
    name = f"forkgym/{place.model}"
    config = {
        "provider": {"forkgym": provider},
        "model": name,
        "small_model": name,
        "share": "disabled",
        "autoupdate": False,
        "permission": {"*": "allow"},
    }
    path = f"{place.home}/.config/opencode/forkgym.json"
    switches = ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS")
    return Launch(
        argv=[f"{place.root}/node_modules/opencode-linux-{CPU}/bin/opencode", "run", "--model", name, place.task],
        env={"OPENCODE_CONFIG": path, **{f"OPENCODE_DISABLE_{switch}": "1" for switch in switches}},
        files={path: json.dumps(config)},
    )


HARNESS = Harness(
    name="opencode",
    manager="npm",
    packages=("opencode-ai@1.18.33",),
    node=False,
    dialect="chat",
    launch=_launch,
    shell=lambda command: ("bash", {"command": command, "description": "Run a command"}),
    prompt_tokens=8000,
    licence="MIT",
)
