"""F05, last sentence: turn, token and time limits truncate; they never terminate."""

import pytest

from forkgym.envs.core import CodingEnv

WAIT = {"tool": "bash", "arguments": {"command": "sleep 0.2"}}


@pytest.mark.parametrize(
    ("limit", "reason"), [({"max_turns": 1}, "turns"), ({"max_tokens": 1}, "tokens"), ({"max_seconds": 0.1}, "time")]
)
def test_limits_truncate(limit, reason):
    with CodingEnv("swe/tiny/*", **limit) as env:
        env.reset(seed=1)
        env.charge_tokens(2)
        _, _, terminated, truncated, info = env.step(WAIT)
        assert (terminated, truncated, info["truncated"]) == (False, True, reason)


def test_a_full_context_truncates():
    with CodingEnv("swe/tiny/*") as env:
        env.reset(seed=1)
        _, _, terminated, truncated, info = env.truncate("context")
        assert (terminated, truncated, info["truncated"]) == (False, True, "context")
