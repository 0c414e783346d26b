"""Instructions: what of a message is kept, and that no line of a fix comes through, however it is spaced."""

from __future__ import annotations

from forkgym.tasks.base import FileChange
from forkgym.tasks.builders.instruction import Failure, added_lines, leaks, write

BEFORE = {"a.py": FileChange(b"def size(items):\n    return len(items)\n")}
FIXED = {"a.py": FileChange(b"def size(items):\n    if items is None:\n        return 0\n    return len(items)\n")}
FAILURES = [
    Failure("tests/test_a.py::test_nothing", "TypeError: object of type 'NoneType' has no len()\nmore (line 7)")
]
SYMPTOM = "- test_nothing: TypeError: object of type 'NoneType' has no len() more"


def told(message: str, **more: object) -> str:
    found = write(message, FAILURES, BEFORE, FIXED, **more)  # type: ignore[arg-type]
    assert found is not None
    return found


def test_a_message_loses_references_and_trailers() -> None:
    message = """size() of nothing is an error (#31)

It should be 0, see https://host.invalid/issue and org/other#4.
Fixes #30

* nothing is no error
Signed-off-by: Ada <ada@localhost>
"""
    assert told(message).split("\n\n") == [
        "size() of nothing is an error",
        "It should be 0, see  and.",
        "* nothing is no error",
        "Tests that you don't see fail now, and should pass:",
        SYMPTOM,
    ]


def test_lines_and_blocks_that_tell_the_fix_are_dropped() -> None:
    message = "Size\n\n    if   items is None :\n\n```\nif items is None: return 0\n```\n\n```\nsize(None)\n```\n+ a\n"
    text = told(message)
    assert "is None" not in text
    assert "```\nsize(None)\n```" in text
    assert not text.count("+ a")


def test_what_was_there_before_and_short_lines_are_no_secret() -> None:
    assert added_lines(BEFORE, FIXED) == {"ifitemsisNone:"}
    assert leaks("if\nitems is\tNone:", added_lines(BEFORE, FIXED)) == ["ifitemsisNone:"]


def test_a_failure_that_quotes_the_fix_is_not_shown() -> None:
    failures = [Failure("t::a", "assert 'if items is None:' in source"), Failure("t::b", "KeyError: 1")]
    assert write("Size", failures, BEFORE, FIXED) == (
        "Size\n\nTests that you don't see fail now, and should pass:\n\n- b: KeyError: 1\n- and 1 more"
    )


def test_nothing_is_better_than_the_fix() -> None:
    assert write("if items is None:", [Failure("t::a", "if items is None:")], BEFORE, FIXED) is None


def test_a_rewriter_is_heard_unless_it_tells() -> None:
    assert told("Size", rewrite=lambda text: "Make size(None) zero.") == "Make size(None) zero."
    heard: list[str] = []

    def telling(text: str) -> str:
        heard.append(text)
        return "Write: if items is None:"

    assert told("Size", rewrite=telling) == heard[0]
    assert told("Size", rewrite=lambda text: " ").startswith("Size")
