"""Many episodes at once: our thread vector environment, and Gymnasium's own."""

import threading
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import CustomSpaceError
from gymnasium.spaces import Dict, Discrete
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import create_shared_memory
from gymnasium.wrappers.vector import RecordEpisodeStatistics

from forkgym.envs.errors import ResetError
from forkgym.envs.spaces import UnicodeText
from forkgym.envs.vector import ThreadVectorEnv
from forkgym.errors import ConfigError


@pytest.fixture
def vector(calc):
    made = []

    def new(n, *tasks, **options):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            made.append(gym.make_vec("forkgym/SWE-v0", n, tasks=list(tasks) or calc.task(), **options))
        return made[-1]

    yield new
    for envs in made:
        envs.close()


def test_make_vec_gives_threads_and_seeds_that_count_up(vector, calc):
    envs = vector(3, *(calc.task(f"t{i}") for i in range(20)))
    assert isinstance(envs, ThreadVectorEnv)
    assert envs.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    observations, infos = envs.reset(seed=7)
    assert envs.observation_space.contains(observations)
    assert infos["seed"].tolist() == [7, 8, 9]
    single = gym.make("forkgym/SWE-v0", tasks=[calc.task(f"t{i}") for i in range(20)])
    for i in range(3):
        observation, info = single.reset(seed=7 + i)
        assert observations["text"][i] == observation["text"]
        assert infos["task"][i] == info["task"]
    single.close()
    assert envs.reset(seed=[4, None, 5])[1]["seed"].tolist() == [4, 8, 5]


@pytest.mark.parametrize("mode", ["vector_entry_point", "sync"])
def test_actions_and_results_are_batched(vector, calc, mode):
    envs = vector(2, vectorization_mode=mode)
    envs.reset(seed=1)
    observations, rewards, terminations, truncations, infos = envs.step((calc.bash("echo a"), calc.bash("echo b")))
    assert observations == {"text": ("a\n", "b\n")}
    assert rewards.tolist() == [0.0, 0.0]
    assert not terminations.any()
    assert not truncations.any()
    assert infos["turn"].tolist() == [1, 1]
    envs.action_space.seed(3)
    envs.step(envs.action_space.sample())


def test_ends_infos_and_failures_of_different_environments(vector, calc):
    envs = vector(3)
    envs.reset(seed=1)
    envs.envs[2].box.close()
    _, rewards, terminations, truncations, infos = envs.step((calc.submit, calc.bash("true"), calc.bash("true")))
    assert terminations.tolist() == [True, False, False]
    assert truncations.tolist() == [False, False, True]
    assert infos["reward"].tolist() == [0.0, None, None]
    assert infos["_reward"].tolist() == [True, False, True]
    assert infos["_verdict"].tolist() == [True, False, False]
    assert infos["failure"]["kind"].tolist() == [None, None, "sandbox"]
    assert rewards.tolist() == [0.0, 0.0, 0.0]
    observations, _, terminations, truncations, infos = envs.step((calc.bash("touch no"), calc.bash("ls"), None))
    assert observations["text"][0] == observations["text"][2] == calc.task().instruction
    assert observations["text"][1] == "README.md\ncalc.py\n"
    assert infos["turn"].tolist() == [0, 2, 0]
    assert not (terminations | truncations).any()
    assert envs.step([calc.bash("ls")] * 3)[0]["text"][0] == "README.md\ncalc.py\n"


def test_disabled_autoreset_resets_only_what_is_asked(vector, calc):
    envs = vector(2, autoreset_mode="Disabled")
    envs.reset(seed=1)
    envs.step((calc.submit, calc.bash("touch here")))
    with pytest.raises(ConfigError, match=r"\[0\] have ended"):
        envs.step((calc.bash("ls"), calc.bash("ls")))
    mask = np.array([True, False])
    envs.reset(options={"reset_mask": mask})
    observations, *_ = envs.step((calc.bash("ls"), calc.bash("ls")))
    assert observations["text"] == ("README.md\ncalc.py\n", "README.md\ncalc.py\nhere\n")


class Meeting(gym.Env):
    """Its step returns only once another environment steps as well."""

    observation_space = action_space = Discrete(2)
    barrier = threading.Barrier(2, timeout=20)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}

    def step(self, action):
        self.barrier.wait()
        return action, 1.0, False, False, {}


def test_steps_run_at_the_same_time():
    envs = ThreadVectorEnv([Meeting, Meeting])
    envs.reset(seed=1)
    assert envs.step(np.array([0, 1]))[0].tolist() == [0, 1]
    envs.close()


def test_a_stuck_environment_ends_by_its_own_timeout(vector, calc):
    envs = vector(2)
    envs.reset(seed=1)
    observations, *_ = envs.step((calc.bash("sleep 60", timeout=0.5), calc.bash("echo quick")))
    assert "timed out after 0.5 s" in observations["text"][0]
    assert observations["text"][1] == "quick\n"


def test_gymnasiums_statistics_wrapper(vector, calc):
    envs = RecordEpisodeStatistics(vector(1, reward="tests", max_turns=3))
    envs.reset(seed=1)
    infos = [envs.step((calc.fix_add,))[4] for _ in range(3)][-1]
    assert infos["episode"]["l"].tolist() == [3]
    assert infos["episode"]["r"].tolist() == [0.75]


def test_processes_work_without_shared_memory_and_are_refused_with_it(calc):
    with pytest.raises(CustomSpaceError, match="UnicodeText"):
        create_shared_memory(Dict({"text": UnicodeText(10)}), 2)
    envs = gym.make_vec(
        "forkgym/SWE-v0", 2, vectorization_mode="async", vector_kwargs={"shared_memory": False}, tasks=calc.task()
    )
    try:
        envs.reset(seed=1)
        for word in ("one", "two"):
            observations, *_ = envs.step((calc.bash(f"echo {word} a"), calc.bash(f"echo {word} b")))
            assert observations["text"] == (f"{word} a\n", f"{word} b\n")
    finally:
        envs.close()


class Unlucky(gym.Env):
    """Ends at every step; its second reset fails."""

    observation_space = Dict({"text": UnicodeText(100)})
    action_space = Discrete(2)
    resets = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.resets += 1
        if self.resets == 2:
            raise ResetError("no sandbox")
        return {"text": f"reset {self.resets}"}, {}

    def step(self, action):
        return {"text": "end"}, 1.0, True, False, {}


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("NextStep", [("end", 1, True), ("failed", 0, False), ("reset 3", 0, False), ("end", 1, True)]),
        ("SameStep", [("failed", 1, True), ("reset 3", 0, False), ("reset 4", 1, True)]),
    ],
)
def test_a_failed_automatic_reset_is_reported_and_tried_again(mode, expected):
    envs = ThreadVectorEnv([Unlucky], mode)
    envs.reset(seed=1)
    for text, reward, terminated in expected:
        observations, rewards, terminations, truncations, infos = envs.step(np.array([0]))
        assert text in observations["text"][0]
        assert (rewards[0], terminations[0]) == (reward, terminated)
        assert ("failure" in infos) == (text == "failed")
        if text == "failed":
            assert infos["failure"]["kind"].tolist() == ["sandbox"]
            assert truncations[0] == (mode == "NextStep")
    envs.close()


def test_bad_arguments(vector, calc):
    with pytest.raises(ConfigError, match="did you mean 'NextStep'"):
        vector(1, autoreset_mode="Nextstep")
    with pytest.raises(ConfigError, match="did you mean 'max_turns'"):
        vector(1, max_turn=1)
    envs = vector(2)
    with pytest.raises(ConfigError, match="1 seeds for 2"):
        envs.reset(seed=[1])
    with pytest.raises(ConfigError, match="reset_mask"):
        envs.reset(options={"reset_mask": np.array([False, False])})
    envs.reset(seed=1)
    with pytest.raises(ConfigError, match="1 actions for 2"):
        envs.step((calc.submit,))
    assert envs.get_attr("render_mode") == (None, None)
    assert len(envs.call("privileged")) == 2
    envs.close()
    envs.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("forkgym-env")]
