"""E01: the ids that were sampled are the ids that are trained, though their text would encode to others."""

from __future__ import annotations

from contextlib import closing

from forkgym.agents.base import Completion, SamplingParams
from forkgym.agents.formats.chatml import ChatML
from forkgym.agents.loops.bash import BashAgent
from forkgym.agents.policies.scripted import ScriptedPolicy
from forkgym.agents.records import decode_episode, encode_episode
from forkgym.agents.tokenizers import ByteTokenizer
from forkgym.envs.core import CodingEnv

TASK = "swe/tiny/clamp/upper-bound"


def test_sampled_ids_survive_a_turn() -> None:
    tokenizer = ByteTokenizer(merges=[(b"a", b"b"), (b"c", b"d"), (b"ab", b"cd")])
    assert tokenizer.encode(tokenizer.decode([256, 257])) == [258]
    first = Completion((256, 257), (-0.25, -0.5), "stop")
    second = Completion((258,), (-0.125,), "stop")
    policy = ScriptedPolicy([first, second], tokenizer)
    with closing(CodingEnv("swe/tiny/clamp/*", max_turns=2)) as env:
        episode = BashAgent(ChatML(tokenizer)).run(
            env, policy, task=TASK, seed=0, sampling=SamplingParams(), episode="e", group="g"
        )
    assert (episode.status, episode.reason) == ("truncated", "turns")
    (segment,) = decode_episode(encode_episode(episode)).segments
    trained = [
        (token, logprob)
        for token, sampled, logprob in zip(segment.ids, segment.sampled, segment.logprobs, strict=True)
        if sampled
    ]
    assert trained == [(256, -0.25), (257, -0.5), (258, -0.125)]
    assert segment.ids.count(256) == segment.ids.count(257) == 1
    before, after = (list(call.ids) for call in policy.calls)
    assert after[: len(before) + 2] == [*before, 256, 257]
    assert len({len(segment.ids), len(segment.sampled), len(segment.logprobs), len(segment.turn)}) == 1
