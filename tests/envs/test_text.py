"""Bytes to text, and cutting."""

import json
import os

import pytest

from forkgym.envs.spaces import UnicodeText
from forkgym.envs.text import cap, decode


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", ""),
        (b"\xff\xfe\x80ok\n", "\ufffd\ufffd\ufffdok\n"),
        (b"a\0b\n", "a\u2400b\n"),
        (b"\x1b[31mred\x1b[0m\r50%\r100%\n", "\x1b[31mred\x1b[0m\r50%\r100%\n"),
        ("naïve ❌\t".encode(), "naïve ❌\t"),
        (b"\xed\xa0\x80", "\ufffd\ufffd\ufffd"),  # a surrogate in the encoding that UTF-8 forbids
    ],
)
def test_decode(data, text):
    assert decode(data) == text


def test_any_bytes_become_text_of_the_space():
    text = decode(os.urandom(4096))
    assert UnicodeText(4096).contains(text)
    assert json.loads(json.dumps(text)) == text


def test_cap_keeps_head_and_tail_and_counts():
    text = "h" * 500 + "m" * 10_000 + "t" * 500
    short = cap(text, 200)
    assert len(short) == 200
    head, note, tail = short.split("\n")
    assert set(head) == {"h"}
    assert set(tail) == {"t"}
    assert int(note.split()[1]) == len(text) - len(head) - len(tail)


@pytest.mark.parametrize("size", [1, 99, 100, 101, 999, 1000, 1001, 1050, 10_050, 10**6])
def test_cap_is_exact_at_every_count_of_digits(size):
    text = "x" * size
    short = cap(text, 100)
    assert len(short) == min(size, 100)
    if size > 100:
        note = short.split("\n")[1]
        assert int(note.split()[1]) == size - short.count("x") + note.count("x")


def test_cap_below_the_length_of_its_note_just_cuts():
    assert cap("x" * 50, 5) == "xxxxx"
