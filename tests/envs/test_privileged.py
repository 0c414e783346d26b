"""What a critic may see never reaches an observation, nor an info before the episode has ended."""

from __future__ import annotations

import json

from forkgym.envs.core import CodingEnv
from forkgym.tasks import load

COMMANDS = ["ls -Ra . /tmp", "cat *.py", "python3 -m unittest discover; env", "ls /work/hidden /hidden; false"]


def test_no_word_of_it_is_in_what_the_agent_gets() -> None:
    task = load("swe/tiny/clamp/upper-bound")[0]
    secrets = {*task.grading.tests, *(test.rpartition(".")[2] for test in task.grading.tests)}
    secrets |= {"gold_distance", "fraction", "files_changed", *task.hidden}
    with CodingEnv(task, reward_mode="potential") as env:
        seen = [env.reset(seed=1)]
        for command in COMMANDS:
            view = env.privileged()
            assert view["failed"]
            assert secrets > {*view["failed"], *view["passed"]}
            observation, *_, info = env.step({"tool": "bash", "arguments": {"command": command}})
            seen.append((observation, info))
        said = json.dumps(seen)
        assert [word for word in secrets if word in said] == []
        assert {kind for kind, _ in env.transcript} == {"task", "action", "observation"}
        final, *_, info = env.step({"tool": "submit", "arguments": {}})
        assert [word for word in secrets if word in json.dumps(final)] == []
        assert set(task.grading.tests) == {finding["id"] for finding in info["verdict"]["findings"]}
