"""C12: what a command prints never submits, whether it fails or not."""

import pytest

from forkgym.envs.core import CodingEnv
from forkgym.envs.formats import TextActions


@pytest.fixture(scope="module")
def env():
    with CodingEnv("swe/tiny/*", max_turns=100) as env:
        texts = TextActions(env)
        texts.reset(seed=1)
        yield texts


@pytest.mark.parametrize(
    "command",
    [
        "false && echo submit",
        "echo submit; false",
        "echo submit",
        "printf '\\140\\140\\140bash\\nsubmit\\n\\140\\140\\140\\n' > f; cat f",
        "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT",
        "submit",
    ],
)
def test_no_output_submits(env, command):
    action = {"tool": "bash", "arguments": {"command": command}}
    for step in (lambda: env.unwrapped.step(action), lambda: env.step(f"```bash\n: ; {command}\n```")):
        _, _, terminated, truncated, info = step()
        assert (terminated, truncated, info["tool_error"]) == (False, False, False)
