"""H03: one seed fixes tasks, files, observations and samples, in any process and whatever the hash seed."""

import json
import os
import subprocess
import sys

import gymnasium as gym

PROGRAM = """
import hashlib, json, random
import numpy as np
from forkgym.envs.core import CodingEnv
random.seed(0); np.random.seed(0)
state = random.getstate(), str(np.random.get_state())
with CodingEnv("swe/tiny/*") as env:
    seen = []
    for seed in (7, None):
        observation, info = env.reset(seed=seed)
        seen.append([observation, info])
        for command in ("find . -type f | sort | xargs sha256sum", "cat *.py", "echo $RANDOM > /dev/null; ls"):
            seen.append(list(env.step({"tool": "bash", "arguments": {"command": command}})))
    env.action_space.seed(7)
    seen.append([env.action_space.sample() for _ in range(5)])
assert state == (random.getstate(), str(np.random.get_state())), "global generators were used"
print(json.dumps(seen))
"""


def play(hash_seed):
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_two_processes_see_the_same():
    first, second = play("1"), play("2")
    assert first == second
    assert first[0][1]["seed"] == first[4][1]["seed"] == 7
    assert [first[0][1]["episode_index"], first[4][1]["episode_index"]] == [0, 1]
    assert "exit code" not in first[1][0]["text"]


def test_a_vector_counts_its_seeds_up_and_then_goes_on():
    envs = gym.make_vec("forkgym/SWE-v0", 2, tasks="swe/tiny/*")
    single = gym.make("forkgym/SWE-v0", tasks="swe/tiny/*")
    _, infos = envs.reset(seed=7)
    _, later = envs.reset()
    for i in range(2):
        assert single.reset(seed=7 + i)[1]["task"] == infos["task"][i]
        assert single.reset()[1]["task"] == later["task"][i]
    envs.close()
    single.close()
