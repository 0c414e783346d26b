"""H06: a grader that raises costs the episode its score, not the run its life, and never counts as zero."""

from __future__ import annotations

from forkgym.agents.base import SamplingParams
from forkgym.agents.collect import Job, collect
from forkgym.agents.formats.chatml import ChatML
from forkgym.agents.loops.bash import BashAgent
from forkgym.agents.policies.scripted import ScriptedPolicy
from forkgym.agents.summary import summarize
from forkgym.agents.tokenizers import ByteTokenizer
from forkgym.envs.base import Evidence
from forkgym.envs.core import CodingEnv


def test_index_error_in_the_reward_is_a_grader_failure() -> None:
    def reward(evidence: Evidence) -> float:
        return [1.0][len(evidence.verdict.findings)]  # IndexError, since there are findings

    run = collect(
        [Job("swe/tiny/clamp/upper-bound", seed=0, group="g", id="e")],
        lambda: CodingEnv("swe/tiny/clamp/*", reward=reward),
        BashAgent(ChatML(ByteTokenizer())),
        ScriptedPolicy(["```bash\nsubmit\n```"]),
        sampling=SamplingParams(),
        max_failed_share=1.0,
    )
    (episode,) = run.episodes
    assert (episode.id, episode.status, episode.reason, episode.reward) == ("e.retry1", "failed", "grader", None)
    assert "IndexError" in episode.detail
    assert summarize([*run.episodes, *run.retried]).reason == {"failed(grader)": 2}
