from __future__ import annotations

from forkgym.agents.base import SamplingParams
from forkgym.agents.formats.chatml import ChatML
from forkgym.agents.loops.bash import BashAgent
from forkgym.agents.loops.oracle import DemonstrationAgent, oracle_texts
from forkgym.agents.policies.scripted import ScriptedPolicy
from forkgym.agents.records import encode_episode
from forkgym.agents.registry import make_agent
from forkgym.agents.tokenizers import ByteTokenizer

TOKENIZER = ByteTokenizer()
BASH = BashAgent(ChatML(TOKENIZER))
TEXTS = [
    "```bash\ncat -n clamp.py\n```",
    "```bash\nsed -i '5c\\        return high' clamp.py\n```",
    "```bash\nsubmit\n```",
]


def play(agent, env, policy=None, max_tokens=500):
    return agent.run(
        env, policy, task="test/clamp", seed=1, sampling=SamplingParams(max_tokens=max_tokens), episode="e", group="g"
    )


def test_oracle_solves_and_nop_does_not(make_env) -> None:
    oracle = play(make_agent("oracle"), make_env())
    assert (oracle.status, oracle.reward, oracle.harness) == ("finished", 1.0, "oracle")
    assert [step.action["tool"] for step in oracle.steps] == ["bash", "submit"]
    nop = play(make_agent("nop"), make_env())
    assert (nop.status, nop.reward, nop.harness) == ("finished", 0.0, "nop")
    assert len(nop.steps) == 1
    assert oracle.segments == nop.segments == []
    encode_episode(oracle)


def test_texts_are_what_a_person_would_type(make_task) -> None:
    assert oracle_texts(make_task()) == TEXTS


def test_demonstration_shows_what_a_policy_would_see(make_env) -> None:
    agent = DemonstrationAgent(BASH, TOKENIZER)
    shown = play(agent, make_env(), max_tokens=1)
    assert (shown.status, shown.reward, shown.harness) == ("finished", 1.0, "demonstration")
    assert [step.text for step in shown.steps] == TEXTS
    (segment,) = shown.segments
    sampled = [i for i, was in enumerate(segment.sampled) if was]
    assert {segment.logprobs[i] for i in sampled} == {0.0}
    assert TOKENIZER.decode([segment.ids[i] for i in sampled]) == "<|im_end|>".join([*TEXTS, ""])
    played = play(BASH, make_env(), ScriptedPolicy(TEXTS))
    assert segment.ids == played.segments[0].ids
    assert segment.sampled == played.segments[0].sampled
