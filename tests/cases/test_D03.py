"""D03: output that is not UTF-8 is an observation like any other."""

import json

import pytest

from forkgym.envs.core import CodingEnv

OUTPUTS = [
    (r"printf '\xff\xfe\x80ok\n'", b"\xff\xfe\x80ok\n", "\ufffd\ufffd\ufffdok\n"),
    (r"printf 'a\0b\n'", b"a\0b\n", "a\u2400b\n"),
    (r"printf '\033[31mred\033[0m\r50%%\r100%%\n'", None, "\x1b[31mred\x1b[0m\r50%\r100%\n"),
    (r"head -c 4096 /dev/urandom", None, None),
    (r"touch $'bad\xff'; ls bad*; rm bad*", None, None),
]


@pytest.fixture(scope="module")
def env():
    with CodingEnv("swe/tiny/*", max_turns=100) as env:
        env.reset(seed=1)
        yield env


@pytest.mark.parametrize(("command", "raw", "text"), OUTPUTS)
def test_output(env, command, raw, text):
    observation, *_, info = env.step({"tool": "bash", "arguments": {"command": command}})
    assert "failure" not in info
    assert "[exit code" not in observation["text"]
    assert env.observation_space.contains(observation)
    assert json.loads(json.dumps(observation)) == observation
    if text is not None:
        assert observation["text"] == text
    if raw is not None:
        result = env.box.exec(command)
        assert (result.exit_code, result.stdout) == (0, raw)


def test_a_file_that_is_not_utf8_can_be_viewed(env):
    env.box.write_file("/work/latin", b"na\xefve\n\x00\n")
    observation, *_ = env.step({"tool": "view", "arguments": {"path": "latin"}})
    assert observation["text"] == "     1\tna\ufffdve\n     2\t\u2400"
