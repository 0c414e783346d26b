"""mini-swe-agent: one tool, bash, a fresh shell for each command. Chat completions, not streamed."""

from __future__ import annotations

from forkgym.agents.harnesses.base import Harness, Launch, Place

_FINISH = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"


def _launch(place: Place) -> Launch:
    config = f"{place.home}/.config/mini-swe-agent"
    words = ["-m", f"openai/{place.model}", "-t", place.task, "-y", "--exit-immediately", "-l", "0"]
    return Launch(
        argv=[*place.python, "minisweagent.run.mini", *words, "-o", f"{config}/trajectory.json"],
        env={
            "OPENAI_API_BASE": f"{place.url}/v1",
            "OPENAI_API_KEY": place.key,
            "MSWEA_CONFIGURED": "true",
            "MSWEA_SILENT_STARTUP": "1",
            "MSWEA_COST_TRACKING": "ignore_errors",
            "MSWEA_GLOBAL_CONFIG_DIR": config,
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        },
    )


HARNESS = Harness(
    name="mini-swe-agent",
    manager="pip",
    packages=("mini-swe-agent==2.4.6",),
    dialect="chat",
    launch=_launch,
    shell=lambda command: ("bash", {"command": command}),
    done=("bash", {"command": _FINISH}),
    prompt_tokens=1100,
    licence="MIT",
)
