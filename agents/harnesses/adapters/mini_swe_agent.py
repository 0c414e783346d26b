"""mini-swe-agent: one tool, bash, a fresh shell for each command. Chat completions, not streamed."""

from __future__ import annotations

from forkgym.agents.harnesses.base import Harness, Launch, Place

_HOST = """\
import json, os, sys
url, key, model, task, asked, told = sys.argv[1:]
os.environ |= {"OPENAI_API_BASE": url + "/v1", "OPENAI_API_KEY": key, "MSWEA_SILENT_STARTUP": "1",
    "MSWEA_COST_TRACKING": "ignore_errors", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
from minisweagent.agents import get_agent
from minisweagent.config import get_config_from_spec
from minisweagent.environments.local import LocalEnvironment
from minisweagent.models import get_model
ask, answers = os.fdopen(int(asked), "w"), os.fdopen(int(told))

class Sandbox(LocalEnvironment):
    def execute(self, action, cwd="", *, timeout=None):
        limit = timeout or self.config.timeout
        wanted = {"command": action.get("command", ""), "timeout": limit, "env": self.config.env}
        ask.write(json.dumps(wanted) + "\\n")
        ask.flush()
        output = json.loads(answers.readline())
        self._check_finished(output)
        return output

config = get_config_from_spec("mini.yaml")
model = get_model(config={**config.get("model", {}), "model_name": "openai/" + model})
settings = {name: config["agent"][name] for name in ("system_template", "instance_template")} | {"cost_limit": 0}
agent = get_agent(model, Sandbox(**config.get("environment", {})), settings, default_type="default")
agent.run(task)
"""
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
    host=_HOST,
)
