"""A13: an episode that runs into its turn limit is graded on what is there, and every started episode leaves a row."""

from __future__ import annotations

from pathlib import Path

from forkgym.agents.base import SamplingParams
from forkgym.agents.collect import Job, collect
from forkgym.agents.formats.chatml import ChatML
from forkgym.agents.loops.bash import BashAgent
from forkgym.agents.loops.sampling import turn_seed
from forkgym.agents.policies.scripted import Call, ScriptedPolicy
from forkgym.agents.records import EpisodeWriter, read_episodes
from forkgym.agents.summary import summarize
from forkgym.agents.tokenizers import ByteTokenizer
from forkgym.envs.core import CodingEnv

TURNS = [
    "```bash\ncat clamp.py\n```",
    "```bash\nsed -i '/value > high/{n;s/value/high/}' clamp.py\n```",
    "```bash\nls\n```",
]


def test_fix_in_turn_two_counts_without_a_submit(tmp_path: Path) -> None:
    """Of three episodes the second loses its engine in turn 2; the others fix the file and never submit."""
    lost = turn_seed(1, 1)

    def script(call: Call) -> str | Exception:
        return OSError("engine gone") if call.params.seed == lost else TURNS[call.turn]

    path = tmp_path / "episodes.jsonl"
    with EpisodeWriter(path) as writer:
        collect(
            [Job("swe/tiny/clamp/upper-bound", seed=i, group="g", id=f"e{i}") for i in range(3)],
            lambda: CodingEnv("swe/tiny/clamp/*", max_turns=3),
            BashAgent(ChatML(ByteTokenizer())),
            ScriptedPolicy(script),
            sampling=SamplingParams(),
            retries=0,
            on_episode=writer.write,
        )
    rows = {e.id: e for e in read_episodes(path).episodes}
    assert sorted(rows) == ["e0", "e1", "e2"]
    for name in ("e0", "e2"):
        assert (rows[name].status, rows[name].reason, rows[name].reward) == ("truncated", "turns", 1.0)
        assert (rows[name].verdict or {})["stage"] == "resolved"
    assert (rows["e1"].status, rows["e1"].reason, rows["e1"].reward, len(rows["e1"].steps)) == (
        "failed",
        "engine",
        None,
        1,
    )
    summary = summarize(rows.values())
    assert (summary.episodes, summary.scored, summary.reward) == (3, 2, 1.0)
