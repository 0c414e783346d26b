"""The player of a recipe: environments as its agent needs them."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from forkgym.agents.base import SamplingParams
from forkgym.agents.collect import Job
from forkgym.agents.loops.mix import MixAgent
from forkgym.agents.loops.oracle import NopAgent
from forkgym.sandboxes.base import Mount
from forkgym.trainers.player import EnvPlayer
from forkgym.trainers.sections import EnvSection


def test_what_agents_of_a_mix_must_see_is_mounted(tmp_path: Path) -> None:
    mount = Mount(str(tmp_path), "/opt/tools")

    class Needy(NopAgent):
        mounts = (mount,)

        def run(self, env: Any, policy: Any, **job: Any) -> Any:
            episode = super().run(env, policy, **job)
            episode.detail = " ".join(mount.target for mount in env.box.spec.mounts)
            return episode

    mix = MixAgent([(Needy(), 1.0), (Needy(), 1.0), (NopAgent(), 1.0)])
    assert mix.mounts == (mount,)
    player = EnvPlayer(EnvSection(), MixAgent([(mix, 1.0)]), None, concurrency=2)
    task = player.tasks("train")[0]
    jobs = [Job(task, seed, "g", f"e{seed}") for seed in range(8)]
    played = player.play("train", jobs, SamplingParams(), lambda episode: None, threading.Event())
    player.close()
    assert {episode.detail for episode in played.episodes} == {"/opt/tools", ""}
    assert {episode.status for episode in played.episodes} == {"finished"}
