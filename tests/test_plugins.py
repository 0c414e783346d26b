"""An installed distribution adds components to every registry through the entry-point group ``forkgym.plugins``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from forkgym import sandboxes
from forkgym.agents.base import SamplingParams
from forkgym.agents.collect import Job, collect
from forkgym.agents.registry import make_agent, make_format, make_policy
from forkgym.agents.tokenizers import ByteTokenizer
from forkgym.cli.players import player
from forkgym.envs import formats, rewards
from forkgym.envs.core import CodingEnv
from forkgym.envs.tools import registry
from forkgym.errors import ConfigError
from forkgym.tasks import load

CODE = """
from forkgym.agents.base import Episode
from forkgym.agents.formats.chatml import ChatML as Format
from forkgym.agents.loops.oracle import OracleAgent as Agent
from forkgym.agents.policies.scripted import ScriptedPolicy as Policy
from forkgym.envs.tools.view import View as Tool
from forkgym.sandboxes.local.backend import LocalBackend as Backend
from forkgym.tasks.grading.base import Record, Report

def generous(evidence):
    return 0.25

def parse(text):
    return {"tool": "submit", "arguments": {}}

def run(box, task, submission):
    return Report({test: Record(True) for test in task.grading.tests})

def absent(env, agent, policy, job, episode, sampling):
    return Episode(episode, job.task, job.group, "absent", job.seed, "finished", reward=0.5)
"""
POINTS = {
    "backend.mine": "Backend",
    "runner.mine": "run",
    "tool.mine": "Tool",
    "reward.mine": "generous",
    "format.mine": "parse",
    "policy.mine": "Policy",
    "chat-format.mine": "Format",
    "agent.mine": "Agent",
    "strategy.mine": "absent",
}


@pytest.fixture
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module of a distribution that stands in a folder of its own on the path, as an installed one does."""
    (tmp_path / "forkgym_plugin_of_a_test.py").write_text(CODE)
    info = tmp_path / "forkgym_plugin_of_a_test-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: forkgym-plugin-of-a-test\nVersion: 1.0\n")
    lines = [f"{name} = forkgym_plugin_of_a_test:{target}" for name, target in POINTS.items()]
    (info / "entry_points.txt").write_text("\n".join(["[forkgym.plugins]", *lines, ""]))
    monkeypatch.syspath_prepend(tmp_path)
    yield __import__("forkgym_plugin_of_a_test")
    del sys.modules["forkgym_plugin_of_a_test"]


def test_parts_are_found_by_their_short_name(parts: Any) -> None:
    assert isinstance(sandboxes.backend("mine"), parts.Backend)
    assert isinstance(registry.build(["mine"])[0], parts.Tool)
    assert rewards.build("mine") is parts.generous
    assert formats.build("mine") is parts.parse
    assert isinstance(make_policy({"name": "mine", "script": ["x"]}), parts.Policy)
    assert isinstance(make_format("mine", ByteTokenizer()), parts.Format)
    assert isinstance(make_agent("mine"), parts.Agent)
    with pytest.raises(ConfigError, match="agent 'mine' needs a model"), player("mine", None):
        pass


def test_a_whole_episode_of_parts_from_elsewhere(parts: Any, tmp_path: Path) -> None:
    folder = tmp_path / "task"
    (folder / "files").mkdir(parents=True)
    (folder / "hidden/solution").mkdir(parents=True)
    (folder / "files/a.txt").write_text("a\n")
    (folder / "hidden/solution/a.txt").write_text("b\n")
    (folder / "task.yaml").write_text(
        "schema: 1\nid: t\nfamily: x\nsplit: test\ninstruction: Do it.\nlicense: Apache-2.0\nsource: a test\n"
        "tools: [bash, submit, mine]\ngrading: {runner: mine, tests: [one]}\n"
    )
    with CodingEnv(load(folder), sandbox="mine", reward="mine") as env:
        env.reset(seed=1)
        assert env.step({"tool": "view", "arguments": {"path": "a.txt"}})[0]["text"] == "     1\ta"
        env.step({"tool": "bash", "arguments": {"command": "echo c > a.txt"}})
        _, reward, terminated, _, info = env.step({"tool": "submit", "arguments": {}})
        assert (reward, terminated, info["verdict"]["stage"]) == (0.25, True, "resolved")


def test_a_strategy_from_elsewhere_plays_the_jobs(parts: Any) -> None:
    run = collect(
        [Job("swe/tiny/clamp/upper-bound", seed=0, group="g", id="e")],
        lambda: CodingEnv("swe/tiny/clamp/*"),
        parts.Agent(),
        None,
        sampling=SamplingParams(),
        strategy="mine",
    )
    assert [(e.harness, e.reward) for e in run.episodes] == [("absent", 0.5)]


@pytest.mark.parametrize(
    ("make", "kind"),
    [(sandboxes.backend, "backend"), (rewards.build, "reward"), (make_policy, "policy"), (make_agent, "agent")],
)
def test_without_the_distribution_the_name_is_unknown(make: Any, kind: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown {kind} 'mine'"):
        make("mine")
