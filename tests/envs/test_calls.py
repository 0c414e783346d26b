"""Tool calls read out of text: what is read, what is left standing, and what is said to be wrong."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forkgym.envs.calls import Reading, WrittenCall, read_call, read_functions, read_tagged


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize(
    ("text", "outside", "calls"),
    [
        ("just text", "just text", []),
        ('<tool_call>\n{"name": "a", "arguments": {"x": 1}}\n</tool_call>', "", [("a", '{"x": 1}')]),
        ('I look.\n<tool_call>\n{"name": "a"}\n</tool_call>\nDone.', "I look.\n\nDone.", [("a", "{}")]),
        (
            '<tool_call>{"name": "a", "arguments": {}}</tool_call>\n'
            '<tool_call>{"arguments":{"b":[]},"name":"c"}</tool_call>',
            "",
            [("a", "{}"), ("c", '{"b":[]}')],
        ),
        # tags within the JSON are text of it
        (
            '<tool_call>{"name": "edit", "arguments": {"new": "<tool_call>{}</tool_call></tool_call>"}}</tool_call>',
            "",
            [("edit", '{"new": "<tool_call>{}</tool_call></tool_call>"}')],
        ),
        # arguments are kept as written: spaces, order, escapes, numbers
        (
            '<tool_call>{"name":"a","arguments":{ "z":1e2,  "a":"\\u00e9é" }}</tool_call>',
            "",
            [("a", '{ "z":1e2,  "a":"\\u00e9é" }')],
        ),
    ],
)
def test_calls_between_tags(text: str, outside: str, calls: list[tuple[str, str]], strict: bool) -> None:
    assert read_tagged(text, strict) == Reading(outside, tuple(WrittenCall(*call) for call in calls))


@pytest.mark.parametrize(
    ("text", "arguments", "problem"),
    [
        ('<tool_call>\n{"name": "a", "arguments": {"x": 1}}', '{"x": 1}', "is not closed"),
        ('<tool_call>```json\n{"name": "a", "arguments": {"x": 1}}\n```</tool_call>', '{"x": 1}', "is not JSON"),
        ('<tool_call>{"name": "a", "parameters": {"x": 1}}</tool_call>', '{"x": 1}', "is not an object with"),
        ('<tool_call>{"id": "1", "name": "a", "arguments": {}}</tool_call>', "{}", "is not an object with"),
        ('<tool_call>{"name": "a", "arguments": "{\\"x\\": 1}"}</tool_call>', '{"x": 1}', "are not an object"),
        ('<tool_call>{"name": "a", "arguments": {"x": "1\n2"}}</tool_call>', '{"x": "1\\n2"}', "is not JSON"),
    ],
)
def test_small_faults_are_forgiven_unless_strict(text: str, arguments: str, problem: str) -> None:
    assert read_tagged(text) == Reading("", (WrittenCall("a", arguments),))
    strict = read_tagged(text, strict=True)
    assert (strict.text, strict.calls) == (text, ())
    assert problem in strict.problem


@pytest.mark.parametrize(
    ("broken", "problem"),
    [
        ('<tool_call>\n{"name": "a", "argum', "is not JSON"),
        ("<tool_call>", "is not JSON"),
        ('<tool_call>{"name": "a", "arguments": {"x": 1,}}</tool_call>', "is not JSON"),
        ('<tool_call>{"name": "a" "arguments": {}}</tool_call>', "no ','"),
        ('<tool_call>{"name": "a", "argument": {}}</tool_call>', "is not an object with"),
        ('<tool_call>{"name": "a", "arguments": [1]}</tool_call>', "are not an object"),
        ('<tool_call>{"name": "a", "arguments": {"x": NaN}}</tool_call>', "NaN"),
        ('<tool_call>{"name": "a", "arguments": "no"}</tool_call>', "are not JSON"),
        ('<tool_call>{"name": "", "arguments": {}}</tool_call>', "empty"),
        ('<tool_call>{"name": "\\ud800", "arguments": {}}</tool_call>', "not printable"),
        ('<tool_call>{"name": "a", "arguments": {}} and</tool_call>', "between its object and"),
        ("<tool_call>" + '{"name": "a", "arguments": ' + '{"a":' * 100_000 + "</tool_call>", "is not JSON"),
    ],
)
def test_what_cannot_be_read_stays_in_the_text_and_is_named(broken: str, problem: str) -> None:
    reading = read_tagged(broken)
    assert (reading.text, reading.calls) == (broken, ())
    assert problem in reading.problem
    # A call before it and one after it are read all the same.
    good = '<tool_call>{"name": "b"}</tool_call>'
    around = read_tagged(f"{good}{broken}")
    assert around.calls == (WrittenCall("b", "{}"),)
    assert around.text == broken.strip("\n")
    if broken.endswith("</tool_call>"):
        assert read_tagged(f"{broken}{good}") == Reading(broken, (WrittenCall("b", "{}"),), reading.problem)


def test_a_lone_surrogate_in_arguments_is_written_as_an_escape() -> None:
    inner = json.dumps({"x": "\ud800"})
    text = f"<tool_call>{json.dumps({'name': 'a', 'arguments': inner})}</tool_call>".replace("\\\\ud800", "\\ud800")
    (call,) = read_tagged(text).calls
    assert call.arguments == '{"x": "\\ud800"}'
    call.arguments.encode()


PARTS = st.sampled_from(
    [
        "<tool_call>",
        "</tool_call>",
        "{",
        "}",
        '"name"',
        ":",
        ",",
        '"a"',
        '"arguments"',
        "\n",
        "```",
        "[",
        "1",
        "\\",
        "{}",
    ]
)


@given(st.lists(PARTS | st.text(max_size=3), max_size=25).map("".join))
def test_any_text_is_read_without_an_error(text: str) -> None:
    for strict in (False, True):
        reading = read_tagged(text, strict)
        assert bool(reading.problem) <= (reading.text != "")
        for call in reading.calls:
            assert isinstance(json.loads(call.arguments), dict)


@given(st.dictionaries(st.text(), st.none() | st.integers() | st.text() | st.lists(st.text())))
def test_what_is_written_is_read_back(arguments: dict[str, object]) -> None:
    written = json.dumps(arguments, ensure_ascii=False)
    text = f'<tool_call>\n{{"name": "a", "arguments": {written}}}\n</tool_call>'
    assert read_tagged(text, strict=True) == Reading("", (WrittenCall("a", written),))
    assert read_call(text[len("<tool_call>") :]) == (
        WrittenCall("a", written),
        text.rindex("}") - len("<tool_call>") + 1,
    )


ELEMENT = (
    "<tool_call>\n<function=edit>\n<parameter=path>\na.py\n</parameter>\n"
    "<parameter=text>\n\n<b>\n\n</parameter>\n</function>\n</tool_call>"
)
READ = WrittenCall("edit", '{"path": "a.py", "text": "\\n<b>\\n"}', untyped=True)


@pytest.mark.parametrize(
    ("text", "strict", "reading"),
    [
        (ELEMENT, True, Reading("", (READ,))),
        (f"I edit.\n{ELEMENT}\n{ELEMENT}", True, Reading("I edit.", (READ, READ))),
        (ELEMENT[len("<tool_call>") : -len("</tool_call>")], False, Reading("", (READ,))),
        ("<function=submit></function>", False, Reading("", (WrittenCall("submit", "{}", untyped=True),))),
        ("text", True, Reading("text")),
    ],
)
def test_elements_of_functions(text: str, strict: bool, reading: Reading) -> None:
    assert read_functions(text, strict) == reading


@pytest.mark.parametrize(
    ("broken", "problem"),
    [
        ("<tool_call>\n<function=a>\n<parameter=x>\n1", "is not closed"),
        ("<tool_call>\n<function=a>ls</function>\n</tool_call>", "something else"),
        ("<function=a><parameter=x>1</parameter><parameter=x>2</parameter></function>", "given twice"),
        ('<tool_call>{"name": "a"}</tool_call>', "holds no <function=NAME>"),
    ],
)
def test_elements_that_cannot_be_read_stay_in_the_text(broken: str, problem: str) -> None:
    reading = read_functions(broken)
    assert (reading.text, reading.calls) == (broken, ())
    assert problem in reading.problem
    after = read_functions(f"{ELEMENT}{broken}")
    assert (after.text, after.calls) == (broken, (READ,))
    assert problem in after.problem


TAGS = st.sampled_from(["<tool_call>", "</tool_call>", "<function=a>", "</function>", "<parameter=b>", "</parameter>"])


@given(st.lists(TAGS | st.text(max_size=3), max_size=25).map("".join))
def test_any_text_with_elements_is_read_without_an_error(text: str) -> None:
    for strict in (False, True):
        for call in read_functions(text, strict).calls:
            assert all(isinstance(value, str) for value in json.loads(call.arguments).values())
