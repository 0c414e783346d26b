"""Raw model text to tool calls."""

import pytest

from forkgym.envs.base import Malformed
from forkgym.envs.formats import TextActions, build, parse_bash
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


@pytest.mark.parametrize(
    ("text", "call"),
    [
        (
            'I look.\n<tool_call>\n{"name": "bash", "arguments": {"command": "ls"}}\n</tool_call>',
            {"tool": "bash", "arguments": {"command": "ls"}},
        ),
        ('<tool_call>{"name": "submit"}</tool_call>', {"tool": "submit", "arguments": {}}),
        (
            '<tool_call>{"arguments": {"path": "a", "first": 3}, "name": "view"}</tool_call>',
            {"tool": "view", "arguments": {"path": "a", "first": 3}},
        ),
    ],
)
def test_hermes_calls(text, call):
    assert build("hermes")(text) == call


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "Found no tool_call"),
        ('<tool_call>{"name": "submit"}', "not closed"),
        ("<tool_call>ls</tool_call>", "not JSON"),
        ("<tool_call>[1]</tool_call>", "not an object"),
        ('<tool_call>{"name": "submit", "argument": {}}</tool_call>', "not an object with"),
        ("<tool_call>" + "[" * 100_000 + "</tool_call>", "not JSON"),
        ('<tool_call>{"name": "submit"}</tool_call><tool_call>{"name": "submit"}</tool_call>', "Found 2 tool_call"),
    ],
)
def test_hermes_says_what_was_wrong(text, words):
    result = build("hermes")(text)
    assert isinstance(result, Malformed)
    assert words in result.message


def test_xml_calls():
    text = "Look:\n<function=edit>\n<parameter=command>\ninsert\n</parameter>\n<parameter=path>a</parameter>\n"
    text += "<parameter=line>\n3\n</parameter>\n<parameter=new_str>\n\nx <b>\n</parameter>\n</function>"
    arguments = {"command": "insert", "path": "a", "line": "3", "new_str": "\nx <b>"}
    assert build("xml")(text) == {"tool": "edit", "arguments": arguments}
    assert build("xml")("<function=submit></function>") == {"tool": "submit", "arguments": {}}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "Found no function"),
        ("<function=bash><parameter=command>ls", "not closed"),
        ("<function=bash>ls</function>", "something else"),
        ("<function=a><parameter=x>1</parameter><parameter=x>2</parameter></function>", "given twice"),
        ("<function=a></function><function=b></function>", "Found 2 function"),
    ],
)
def test_xml_says_what_was_wrong(text, words):
    result = build("xml")(text)
    assert isinstance(result, Malformed)
    assert words in result.message


def test_untyped_arguments_are_read_as_the_schema_says(make):
    base = make()
    env = TextActions(base, format="xml")
    env.reset(seed=1)
    base.box.write_file("/work/f.txt", b"one\n2\nthree\n")

    def view(first):
        text = f"<function=view><parameter=path>f.txt</parameter><parameter=first>{first}</parameter></function>"
        observation, *_, info = env.step(text)
        return observation["text"], info["tool_error"]

    assert view("3") == ("     3\tthree", False)
    text, wrong = view("three")
    assert wrong
    assert "view.first must be an integer, got a string" in text
    call = "<function=edit><parameter=command>create</parameter><parameter=path>n</parameter>"
    env.step(call + "<parameter=file_text>\n42\n</parameter></function>")  # a text that looks like a number
    assert base.box.read_file("/work/n") == b"42"
