"""Long episodes in several streams: each sampled token is trained once, under the context it was sampled in."""

from __future__ import annotations

from typing import Any

import pytest

from forkgym.agents.base import Episode, SamplingParams, Segment
from forkgym.agents.formats.chatml import ChatML
from forkgym.agents.loops.bash import SYSTEM, BashAgent
from forkgym.agents.loops.tools import ToolsAgent
from forkgym.agents.policies.scripted import Call, ScriptedPolicy
from forkgym.agents.records import decode_episode, encode_episode
from forkgym.agents.tokenizers import ByteTokenizer
from forkgym.errors import ConfigError
from forkgym.trainers.batch import build_batch

CHAT = ChatML(ByteTokenizer())
LOOK = "```bash\ncat clamp.py\n```"
FIX = "```bash\nsed -i '5s/x/high/' clamp.py && echo fixed\n```"
SUBMIT = "```bash\nsubmit\n```"
NOTES = "Line 5 of clamp.py is wrong."
OPENING = len(CHAT.start([{"role": "system", "content": SYSTEM}]))
ASKED = "The conversation is nearly full."


def play(env: Any, agent: BashAgent, policy: ScriptedPolicy) -> Episode:
    params = SamplingParams(max_tokens=500)
    return agent.run(env, policy, task="test/clamp", seed=7, sampling=params, episode="e", group="g")


def script(call: Call) -> str:
    """Looks, is asked for notes, goes on from them."""
    if ASKED in call.text.rpartition("<|im_start|>user")[2]:
        return NOTES
    if NOTES not in call.text:
        return LOOK
    return SUBMIT if "fixed" in call.text.rpartition("<|im_start|>user")[2] else FIX


def sampled(segment: Segment) -> str:
    return CHAT.tokenizer.decode([id for id, was in zip(segment.ids, segment.sampled, strict=True) if was])


def contexts(segment: Segment) -> list[list[int]]:
    """What stands before each stretch of sampled tokens."""
    starts = [i for i, was in enumerate(segment.sampled) if was and not segment.sampled[i - 1]]
    return [segment.ids[:start] for start in starts]


def test_a_full_stream_ends_in_a_summary_and_another_goes_on_from_it(make_env: Any) -> None:
    policy = ScriptedPolicy(script)
    episode = play(make_env(), BashAgent(CHAT, compact_at=OPENING + 500), policy)
    assert (episode.status, episode.reward) == ("finished", 1.0)
    assert episode.metrics["compactions"] == 1.0
    first, second = episode.segments
    # Every call of the policy stands in the streams with its own context: nothing was rendered again.
    assert [list(call.ids) for call in policy.calls] == [*contexts(first), *contexts(second)]
    looks = len(policy.calls) - 3
    assert looks > 1
    assert sampled(first) == f"{LOOK}<|im_end|>" * looks + f"{NOTES}<|im_end|>"
    assert sampled(second) == f"{FIX}<|im_end|>{SUBMIT}<|im_end|>"
    # The first stream ends in the request in place of the output it had no room for; the second has notes and output.
    before, after = (CHAT.tokenizer.decode(segment.ids) for segment in episode.segments)
    assert f"{LOOK}<|im_end|>\n<|im_start|>user\n{ASKED}" in before
    assert before.count("def clamp") == looks - 1
    assert f"Fix clamp.py.\n\nYour notes so far:\n{NOTES}\n\nThe last output:\ndef clamp(x, low, high):" in after
    # Turns are counted through; that of the summary is no step of the environment.
    assert [step.turn for step in episode.steps] == [*range(looks), looks + 1, looks + 2]
    turns = [turn for s in episode.segments for turn, was in zip(s.turn, s.sampled, strict=True) if was]
    assert sorted(set(turns)) == list(range(looks + 3))
    assert encode_episode(decode_episode(encode_episode(episode))) == encode_episode(episode)


def test_summaries_are_paid_for(make_env: Any) -> None:
    env = make_env()
    episode = play(env, BashAgent(CHAT, compact_at=OPENING + 500), ScriptedPolicy(script))
    assert env.usage()["tokens"] == episode.metrics["sampled_tokens"]


def test_a_summary_is_trained_and_the_episode_stays_one_member(make_env: Any) -> None:
    episode = play(make_env(), BashAgent(CHAT, compact_at=OPENING + 500), ScriptedPolicy(script))
    batch = build_batch([episode])
    assert batch.member.tolist() == [0, 0]
    trained = batch.ids[0][batch.mask[0]].tolist()
    assert CHAT.tokenizer.decode(trained).endswith(f"{NOTES}<|im_end|>")
    assert int(batch.mask.sum()) == episode.metrics["sampled_tokens"]


def test_the_same_episode_without_need_is_one_stream(make_env: Any) -> None:
    lines = [LOOK, FIX, SUBMIT]
    plain = play(make_env(), BashAgent(CHAT), ScriptedPolicy(lines))
    roomy = play(make_env(), BashAgent(CHAT, compact_at=100_000), ScriptedPolicy(lines))
    assert [s.ids for s in plain.segments] == [s.ids for s in roomy.segments]
    assert "compactions" not in roomy.metrics


def test_a_window_too_small_for_the_summary_is_a_truncation(make_env: Any) -> None:
    policy = ScriptedPolicy(script, window=OPENING + 200)
    episode = play(make_env(), BashAgent(CHAT, compact_at=100), policy)
    assert (episode.status, episode.reason) == ("truncated", "context")
    assert episode.scored


def test_tool_calls_are_compacted_too(make_env: Any) -> None:
    def calls(call: Call) -> str:
        if ASKED in call.text.rpartition("<|im_start|>user")[2]:
            return NOTES
        name, arguments = ("submit", "{}") if NOTES in call.text else ("view", '{"path": "clamp.py"}')
        return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'

    episode = play(make_env(), ToolsAgent(CHAT, compact_at=3000), ScriptedPolicy(calls))
    assert [step.action["tool"] for step in episode.steps] == ["view", "submit"]
    first, second = (CHAT.tokenizer.decode(segment.ids) for segment in episode.segments)
    assert first.split("<|im_end|>")[0] == second.split("<|im_end|>")[0]  # the tools are defined in both
    assert "<tools>" in second


def test_a_wrong_limit_is_refused() -> None:
    with pytest.raises(ConfigError, match="compact_at must be at least 1"):
        BashAgent(CHAT, compact_at=0)
