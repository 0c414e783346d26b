"""A13: at the turn limit what is there is collected and graded."""

from forkgym.envs.core import CodingEnv
from forkgym.tasks import load


def test_a_fix_that_was_never_submitted_counts():
    task = load("swe/tiny/*")[0]
    (path, data), *_ = task.oracle.items()
    with CodingEnv(task, max_turns=3) as env:
        env.reset(seed=1)
        look = {"tool": "bash", "arguments": {"command": "ls"}}
        fix = {"tool": "edit", "arguments": {"command": "create", "path": path, "file_text": (data or b"").decode()}}
        for action in (look, fix):
            assert env.step(action)[2:4] == (False, False)
        _, reward, terminated, truncated, info = env.step(look)
        assert (terminated, truncated, info["truncated"]) == (False, True, "turns")
        assert (reward, info["reward"], info["verdict"]["stage"]) == (1.0, 1.0, "resolved")
