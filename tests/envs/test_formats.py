"""Raw model text to tool calls."""

import pytest

from forkgym.envs.base import Malformed
from forkgym.envs.formats import build, parse_bash
from forkgym.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("```bash\nls\n```", "ls"),
        ("I look.\n\n```bash\nls -la\n```\nThen I go on.", "ls -la"),
        ("```sh\nls\n```", "ls"),
        ("```bash\r\nls\r\n```\r\n", "ls"),
        ("```bash \ncat <<'E'\n``\nE\n```", "cat <<'E'\n``\nE"),
        ("```python\nprint()\n```\n```bash\nls\n```", "ls"),
        ("```bash\nsubmit --help\n```", "submit --help"),
        ("```bash\necho submit\n```", "echo submit"),
    ],
)
def test_one_block_is_a_command(text, command):
    assert parse_bash(text) == {"tool": "bash", "arguments": {"command": command}}


@pytest.mark.parametrize("text", ["```bash\nsubmit\n```", "Done.\n```bash\n  submit \n```\n"])
def test_submit_alone_submits(text):
    assert parse_bash(text) == {"tool": "submit", "arguments": {}}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "Found no bash block"),
        ("ls", "Found no bash block"),
        ("submit", "Found no bash block"),
        ("```\nls\n```", "Found no bash block"),
        ("inline ```bash\nls\n```", "Found no bash block"),
        ("```bash\nls", "not closed"),
        ("```bash\n\n```", "empty"),
        ("```bash\nls\n```\n```bash\npwd\n```", "Found 2 bash blocks"),
        ("```bash\nls\n```\n```bash\nsubmit\n```", "Found 2 bash blocks"),
    ],
)
def test_anything_else_says_what_was_wrong(text, words):
    result = parse_bash(text)
    assert isinstance(result, Malformed)
    assert words in result.message
    assert "```bash" in result.message


def test_formats_by_name():
    assert build("bash") is parse_bash
    assert build("forkgym.envs.formats:parse_bash") is parse_bash
    with pytest.raises(ConfigError, match="did you mean 'bash'"):
        build("bsh")
