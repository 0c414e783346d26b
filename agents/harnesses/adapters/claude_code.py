"""Claude Code: two dozen tools, a very long prompt. Anthropic messages, streamed."""

from __future__ import annotations

from forkgym.agents.harnesses.base import CPU, Harness, Launch, Place

_PACKAGE = "@anthropic-ai/claude-code"
_OFF = (
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
    "DISABLE_TELEMETRY",
    "DISABLE_AUTOUPDATER",
    "DISABLE_ERROR_REPORTING",
)


def _launch(place: Place) -> Launch:
    models = ("ANTHROPIC_MODEL", "ANTHROPIC_SMALL_FAST_MODEL", "ANTHROPIC_DEFAULT_HAIKU_MODEL")
    return Launch(
        argv=[
            f"{place.root}/node_modules/{_PACKAGE}-linux-{CPU}/claude",
            *("--dangerously-skip-permissions", "--output-format", "json", "-p", place.task),
        ],
        env={
            "ANTHROPIC_BASE_URL": place.url,
            "ANTHROPIC_API_KEY": place.key,
            "IS_SANDBOX": "1",
            **dict.fromkeys(models, place.model),
            **dict.fromkeys(_OFF, "1"),
        },
    )


HARNESS = Harness(
    name="claude-code",
    manager="npm",
    packages=(f"{_PACKAGE}@2.1.332",),
    node=False,
    dialect="messages",
    launch=_launch,
    shell=lambda command: ("Bash", {"command": command, "description": "Run a command"}),
    prompt_tokens=13000,
    licence="proprietary",
)
