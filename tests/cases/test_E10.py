"""E10: an assistant turn of the prompt is not the policy's own, so none of its tokens is trained."""

from __future__ import annotations

from contextlib import closing

from forkgym.agents.base import Completion, SamplingParams
from forkgym.agents.formats.chatml import ChatML
from forkgym.agents.loops.bash import BashAgent
from forkgym.agents.policies.scripted import ScriptedPolicy
from forkgym.agents.tokenizers import ByteTokenizer
from forkgym.envs.core import CodingEnv


def test_only_the_five_sampled_ids_are_marked() -> None:
    example = [
        {"role": "user", "content": "List the files."},
        {"role": "assistant", "content": "```bash\nls\n```"},
    ]
    sampled = Completion(tuple(b"pwd!!"), (-1.0,) * 5, "length")
    with closing(CodingEnv("swe/tiny/clamp/*", max_turns=1)) as env:
        episode = BashAgent(ChatML(ByteTokenizer()), examples=example).run(
            env,
            ScriptedPolicy([sampled]),
            task="swe/tiny/clamp/upper-bound",
            seed=0,
            sampling=SamplingParams(),
            episode="e",
            group="g",
        )
    assert [message["role"] for message in episode.prompt] == ["system", "user", "assistant", "user"]
    (segment,) = episode.segments
    assert sum(segment.sampled) == 5
    assert [i for i, was in zip(segment.ids, segment.sampled, strict=True) if was] == list(b"pwd!!")
