"""A harness whose program runs on the host: its commands run in the sandbox, and it is ended with the episode."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from forkgym.agents.base import Episode, SamplingParams
from forkgym.agents.formats.chatml import ChatML
from forkgym.agents.harnesses import store
from forkgym.agents.harnesses.base import Harness, Launch
from forkgym.agents.harnesses.host import HostAgent
from forkgym.agents.policies.scripted import ScriptedPolicy
from forkgym.envs.core import CodingEnv
from forkgym.errors import ConfigError

pytest.importorskip("starlette", reason="the extra gateway is not installed")

FIX = "sed -i '5s/.*/        return high/' clamp.py"
PROGRAM = """
import json, os, sys, time, urllib.request
url, key, model, task, asked, told = sys.argv[1:]
asked, told = os.fdopen(int(asked), "w"), os.fdopen(int(told))
messages = [{"role": "user", "content": task}]
while True:
    body = json.dumps({"messages": messages}).encode()
    head = {"Authorization": "Bearer " + key}
    with urllib.request.urlopen(urllib.request.Request(url + "/v1/chat/completions", body, head)) as answer:
        text = json.load(answer)["choices"][0]["message"]["content"]
    if text == "done":
        break
    if text == "hang":
        time.sleep(600)
    if text == "nonsense":
        asked.write("nonsense\\n"); asked.flush()
    asked.write(json.dumps({"command": text, "timeout": 4, "env": {"PAGER": "cat"}}) + "\\n")
    asked.flush()
    line = told.readline()
    messages += [{"role": "assistant", "content": text}, {"role": "user", "content": line}]
"""


def toy(host: str = PROGRAM) -> Harness:
    return Harness("toy", "pip", (), "chat", lambda place: Launch([]), lambda c: ("bash", {"command": c}), host=host)


@pytest.fixture(scope="module", autouse=True)
def toy_store(places: Callable[..., Any]) -> Iterator[None]:
    with places() as place, pytest.MonkeyPatch.context() as patch:
        patch.setenv(store.ENVIRONMENT, str(place / "harnesses"))
        store.install(toy())
        yield


@pytest.fixture
def play(make_env: Callable[..., CodingEnv]) -> Callable[..., Episode]:
    def run(script: list[Any], stall: float = 60.0, **options: Any) -> Episode:
        policy = ScriptedPolicy(script)
        agent = HostAgent(ChatML(policy.tokenizer), harness=toy(), stall=stall)
        return agent.run(
            make_env(**options), policy, task="test/clamp", seed=0,
            sampling=SamplingParams(max_tokens=200), episode="e", group="g",
        )  # fmt: skip

    return run


def test_commands_run_in_the_sandbox_and_the_work_is_graded(play: Callable[..., Episode]) -> None:
    here = os.getcwd()
    episode = play([f"{FIX}; pwd; echo $PAGER; ls {here}; exit 3", "sleep 60", "done"])
    assert (episode.status, episode.reason, episode.reward) == ("finished", "submitted", 1.0), episode.detail
    first, second, _ = (step.observation for step in episode.steps)
    answer = json.loads(first)
    assert answer["output"].startswith("/work\ncat\nls: cannot access")
    assert answer["returncode"] == 3
    assert "timed out after 4 seconds" in json.loads(second)["exception_info"]


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (["hang"], "no call of the model for 1 s"),
        (["nonsense"], "the program on the host asked for 'nonsense"),
    ],
)
def test_its_own_failure_is_never_a_reward_of_zero(play: Callable[..., Episode], script: list[str], said: str) -> None:
    episode = play(script, stall=1.0)
    assert (episode.status, episode.reason, episode.reward) == ("failed", "harness", None)
    assert said in episode.detail
    assert not running()


def test_time_and_turns_bound_it(play: Callable[..., Episode]) -> None:
    late = play([FIX, "hang"], max_seconds=3.0)
    assert (late.status, late.reason, late.reward) == ("truncated", "time", 1.0)
    many = play([FIX] * 5, max_turns=2)
    assert (many.status, many.reason, many.reward) == ("truncated", "turns", 1.0)
    assert not running()


def test_one_without_a_program_for_the_host_is_refused() -> None:
    with pytest.raises(ConfigError, match="runs in the sandbox only"):
        HostAgent(ChatML(ScriptedPolicy([]).tokenizer), harness=toy(host=""))


def running() -> list[bytes]:
    """Programs of hosts that are still there."""
    lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    return [line for line in lines if b"forkgym-host-" in line]
