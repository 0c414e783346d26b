"""A11: an edit of a file with carriage returns keeps them, whatever line ending the model wrote; nothing gets mixed."""

import pytest

from forkgym.envs.core import CodingEnv

CRLF = b"a\r\nb\r\nc\r\n"
PATH = "/work/f.txt"


@pytest.fixture(scope="module")
def env():
    with CodingEnv("swe/tiny/*", max_turns=100) as env:
        env.reset(seed=1)
        yield env


def edited(env, before, **arguments):
    env.box.write_file(PATH, before)
    *_, info = env.step({"tool": "edit", "arguments": {"path": PATH, **arguments}})
    return info["tool_error"], env.box.read_file(PATH)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("b", "B"),
        ("b\n", "B\n"),
        ("a\nb\n", "a\nB\n"),
        ("a\nb\nc", "a\nB\nc"),
        ("b\r\nc", "B\r\nc"),
        ("b\r\nc", "B\nc"),
    ],
)
def test_replaced_lines_keep_the_carriage_returns(env, old, new):
    due = (False, bytes.fromhex("610d0a420d0a630d0a"))
    assert edited(env, CRLF, command="str_replace", old_str=old, new_str=new) == due


@pytest.mark.parametrize("new", ["x\ny", "x\ny\n", "x\r\ny\r\n"])
def test_inserted_lines_get_the_files_own_ending(env, new):
    assert edited(env, CRLF, command="insert", line=1, new_str=new) == (False, b"a\r\nx\r\ny\r\nb\r\nc\r\n")
    assert edited(env, b"a\nb\n", command="insert", line=1, new_str=new) == (False, b"a\nx\ny\nb\n")


def test_a_file_that_is_mixed_already_changes_in_the_lines_replaced_alone(env):
    mixed = b"a\r\nb\nc\r\n"
    assert edited(env, mixed, command="str_replace", old_str="b\n", new_str="B\n") == (False, b"a\r\nB\nc\r\n")
    assert edited(env, mixed, command="str_replace", old_str="c\n", new_str="C\n") == (False, b"a\r\nb\nC\r\n")


def test_a_refused_edit_changes_no_byte(env):
    assert edited(env, CRLF, command="str_replace", old_str="b\nd", new_str="B\nd") == (True, CRLF)
