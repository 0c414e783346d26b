"""OpenHands, through its SDK: a terminal, an editor and a task list. Chat completions, not streamed.

The SDK is a library, so what starts it is the short program below. It needs Python 3.12.
"""

from __future__ import annotations

from forkgym.agents.harnesses.base import Harness, Launch, Place

_PROGRAM = """\
import os, sys
from openhands.sdk import LLM, Conversation
from openhands.tools.preset.default import get_default_agent
url, key, model, task = sys.argv[1:]
llm = LLM(model=f"openai/{model}", base_url=url, api_key=key)
conversation = Conversation(agent=get_default_agent(llm=llm, cli_mode=True), workspace=os.getcwd())
conversation.send_message(task)
conversation.run()
"""


def _launch(place: Place) -> Launch:
    path = f"{place.home}/.openhands/play.py"
    return Launch(
        argv=[*place.python, path, f"{place.url}/v1", place.key, place.model, place.task],
        env={
            "OPENHANDS_SUPPRESS_BANNER": "1",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "DO_NOT_TRACK": "1",
            "OTEL_SDK_DISABLED": "true",
        },
        files={path: _PROGRAM},
    )


HARNESS = Harness(
    name="openhands",
    manager="pip",
    packages=("openhands-sdk==1.58.2", "openhands-tools==1.58.2"),
    python="3.12",
    dialect="chat",
    launch=_launch,
    shell=lambda command: ("terminal", {"command": command, "summary": "run a command", "security_risk": "LOW"}),
    done=("finish", {"message": "All done.", "summary": "end"}),
    prompt_tokens=8000,
    licence="MIT",
)
