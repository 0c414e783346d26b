"""H07: Gymnasium's checker passes an environment whose reset is not deterministic; ours does not."""

import gymnasium as gym
import pytest
from gymnasium.spaces import Discrete
from gymnasium.utils.env_checker import check_env

from forkgym.envs.conformance import ConformanceError, check, run, seed_fixes_everything
from forkgym.envs.spaces import UnicodeText


class Numbered(gym.Env):
    """Its first observations are ``task 1``, ``task 2``, ... whatever the seed."""

    observation_space = UnicodeText(20)
    action_space = Discrete(2)
    metadata = {"render_modes": []}  # noqa: RUF012
    count = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count += 1
        return f"task {self.count}", {"seed": seed, "task": "t"}

    def step(self, action):
        return "task", 0.0, False, False, {}


@pytest.mark.filterwarnings("ignore:.*Not able to test alternative render modes")
def test_gymnasium_does_not_see_it():
    check_env(Numbered(), skip_close_check=True)


def test_our_rule_does():
    with pytest.raises(ConformanceError, match=r"^seed_fixes_everything: .*task 1.* became .*task 2"):
        run(seed_fixes_everything, Numbered)
    with pytest.raises(ConformanceError):
        check(Numbered)
