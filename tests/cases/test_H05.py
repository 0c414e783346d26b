"""H05: episodes of four steps with reward 1 each have return 4 and length 4 in both autoreset modes."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Discrete
from gymnasium.wrappers.vector import RecordEpisodeStatistics

from forkgym.envs.core import CodingEnv
from forkgym.envs.vector import ThreadVectorEnv
from forkgym.tasks import load


class Four(gym.Env):
    """Observes how many steps were made; ends at four."""

    observation_space = Discrete(5)
    action_space = Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return 0, {}

    def step(self, action):
        self.steps += 1
        return self.steps, 1.0, self.steps == 4, False, {"steps": self.steps}


@pytest.mark.parametrize(
    ("mode", "observed", "rewards"),
    [
        ("NextStep", [1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1, 2, 3, 4], [1, 1, 1, 1, 0, 1, 1, 1, 1, 0, 1, 1, 1, 1]),
        ("SameStep", [1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0], [1] * 12),
    ],
)
def test_three_episodes(mode, observed, rewards):
    envs = RecordEpisodeStatistics(ThreadVectorEnv([Four, Four], mode))
    envs.reset(seed=1)
    steps, episodes = [], []
    for _ in observed:
        observations, reward, terminations, _, infos = envs.step(np.array([0, 1]))
        steps.append((observations.tolist(), reward.tolist()))
        final = infos.get("final_info", infos)
        if "episode" in infos:
            episodes.append((infos["episode"]["r"].tolist(), infos["episode"]["l"].tolist()))
        if mode == "SameStep" and terminations.any():
            assert infos["final_obs"].tolist() == [4, 4]
            assert final["steps"].tolist() == [4, 4]
    envs.close()
    assert steps == [([o, o], [float(r)] * 2) for o, r in zip(observed, rewards, strict=True)]
    assert episodes == [([4.0, 4.0], [4, 4])] * 3


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_with_sandboxes(mode):
    task = load("swe/tiny/*")[0]
    envs = ThreadVectorEnv([lambda: CodingEnv(task, max_turns=2)], mode)
    envs.reset(seed=1)
    seen = []
    for i in range(5):
        action = {"tool": "bash", "arguments": {"command": f"echo {i} >> /tmp/seen; cat /tmp/seen"}}
        observations, _, _, truncations, _ = envs.step((action,))
        seen.append((observations["text"][0], bool(truncations[0])))
    envs.close()
    if mode == "NextStep":  # step 2 begins the next episode and runs nothing
        assert seen == [("0\n", False), ("0\n1\n", True), (task.instruction, False), ("3\n", False), ("3\n4\n", True)]
    else:
        assert seen == [
            ("0\n", False),
            (task.instruction, True),
            ("2\n", False),
            (task.instruction, True),
            ("4\n", False),
        ]
