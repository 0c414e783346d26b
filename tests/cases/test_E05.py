"""E05: earlier reasoning stays in the stream it was sampled in, whatever message follows."""

from __future__ import annotations

from contextlib import closing

import pytest

from forkgym.agents.base import SamplingParams
from forkgym.agents.formats.chatml import ChatML
from forkgym.agents.loops.bash import BashAgent
from forkgym.agents.policies.scripted import ScriptedPolicy
from forkgym.agents.tokenizers import ByteTokenizer
from forkgym.envs.core import CodingEnv

TASK = "swe/tiny/clamp/upper-bound"
NEXT = "<think>open it</think>\n```bash\ncat clamp.py\n```"


@pytest.mark.parametrize(
    ("first", "answer"),
    [
        ("<think>look at f first</think>\n```bash\nls\n```", "clamp.py"),
        ("<think>look at f first</think>\nls", "Found no bash block."),
    ],
)
def test_both_thoughts_are_trained_once_under_their_own_context(first: str, answer: str) -> None:
    tokenizer = ByteTokenizer()
    policy = ScriptedPolicy([first, NEXT], tokenizer)
    with closing(CodingEnv("swe/tiny/clamp/*", max_turns=2)) as env:
        episode = BashAgent(ChatML(tokenizer)).run(
            env, policy, task=TASK, seed=0, sampling=SamplingParams(), episode="e", group="g"
        )
    (segment,) = episode.segments
    sampled = [i for i, was in enumerate(segment.sampled) if was]
    assert tokenizer.decode([segment.ids[i] for i in sampled]) == f"{first}<|im_end|>{NEXT}<|im_end|>"
    # The context each turn was sampled under is exactly what stands before it in the trained stream.
    starts = [i for i in sampled if i - 1 not in sampled]
    assert [list(call.ids) for call in policy.calls] == [segment.ids[:start] for start in starts]
    assert first in policy.calls[1].text
    assert answer in policy.calls[1].text.split(first)[1]
