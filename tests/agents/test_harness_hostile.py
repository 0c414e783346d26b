"""A harness that fights those who run it: whatever it does, its episode ends as one of the known ends, and is over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from forkgym.agents.base import Episode, SamplingParams
from forkgym.agents.formats.chatml import ChatML
from forkgym.agents.harnesses import store
from forkgym.agents.harnesses.agent import HarnessAgent
from forkgym.agents.harnesses.base import Harness, Launch, Place
from forkgym.agents.policies.scripted import ScriptedPolicy
from forkgym.envs.core import CodingEnv
from forkgym.tasks.base import Task

pytest.importorskip("starlette", reason="the extra gateway is not installed")

ASK = """
import glob, json, os, signal, subprocess, sys, time, urllib.error, urllib.request
url, key = sys.argv[1:3]
def ask(text="hi"):
    body = json.dumps({"messages": [{"role": "user", "content": text}]}).encode()
    head = {"Authorization": "Bearer " + key}
    with urllib.request.urlopen(urllib.request.Request(url + "/v1/chat/completions", body, head)) as answer:
        return json.load(answer)["choices"][0]["message"]["content"]
"""
FOR_EVER = """
n = 0
while True:
    n += 1
    try:
        ask(str(n))
    except OSError:
        time.sleep(0.1)
"""


@pytest.fixture(scope="module", autouse=True)
def hostile_store(places: Callable[..., Any]) -> Iterator[None]:
    with places() as place, pytest.MonkeyPatch.context() as patch:
        patch.setenv(store.ENVIRONMENT, str(place / "harnesses"))
        store.install(hostile(""))
        yield


def hostile(program: str) -> Harness:
    def launch(place: Place) -> Launch:
        path = f"{place.home}/hostile.py"
        return Launch([*place.python[:-2], path, place.url, place.key], {}, {path: ASK + program})

    return Harness("hostile", "pip", (), "chat", launch, shell=lambda command: ("bash", {"command": command}))


@pytest.fixture
def play(make_task: Callable[..., Task]) -> Iterator[Callable[..., Episode]]:
    made: list[CodingEnv] = []

    def run(program: str, *, stall: float = 60.0, **options: Any) -> Episode:
        policy = ScriptedPolicy(["said"] * 1000)
        agent = HarnessAgent(ChatML(policy.tokenizer), harness=hostile(program), stall=stall)
        env = CodingEnv([make_task()], mounts=agent.mounts, **options)
        made.append(env)
        return agent.run(
            env, policy, task="test/clamp", seed=3, sampling=SamplingParams(max_tokens=50), episode="e", group="g"
        )

    yield run
    for env in made:
        env.close()


@pytest.mark.parametrize(
    "trick",
    ["os.kill(os.getppid(), signal.SIGSTOP)", "signal.signal(signal.SIGTERM, signal.SIG_IGN)"],
    ids=["it stops the relay", "it ignores the end"],
)
def test_it_cannot_keep_its_episode_from_ending(play: Callable[..., Episode], trick: str) -> None:
    """Without its time being up: a stopped relay brings no more calls, so it has done nothing for too long."""
    stopped = "STOP" in trick
    episode = play(f"ask()\n{trick}\n{FOR_EVER}", max_turns=3, max_seconds=1e6, stall=1.5 if stopped else 60.0)
    expected = ("failed", "harness", None) if stopped else ("truncated", "turns", 0.0)
    assert (episode.status, episode.reason, episode.reward) == expected
    assert 1 <= len(episode.steps) <= 3
    assert sum(map(sum, (segment.sampled for segment in episode.segments))) == 5 * len(episode.steps)
