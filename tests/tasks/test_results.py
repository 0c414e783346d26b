"""Reports of test tools: JUnit XML and TAP become records; what is malformed or contradicts itself is refused."""

from __future__ import annotations

import pytest

from forkgym.tasks.grading.results import UnreadableError, junit, tap


def seen(results) -> list[tuple[str, str]]:
    return [(result.id, result.status) for result in results]


JUNIT = b"""<?xml version="1.0"?>
<testsuites>
  <testsuite name="a" tests="5" failures="1">
    <testcase classname="a.T" name="good" time="1.5"/>
    <testcase classname="a.T" name="bad"><failure message="1 != 2">long text</failure></testcase>
    <testcase classname="a.T" name="broken"><error><![CDATA[it <broke>]]></error></testcase>
    <testcase classname="a.T" name="left out"><skipped message="no network"/></testcase>
    <testcase name="lone" status="notrun"/>
  </testsuite>
</testsuites>
"""


def test_junit_cases_become_records() -> None:
    found = junit(JUNIT)
    assert seen(found) == [
        ("a.T::good", "passed"),
        ("a.T::bad", "failed"),
        ("a.T::broken", "failed"),
        ("a.T::left out", "skipped"),
        ("lone", "skipped"),
    ]
    assert [result.message for result in found] == ["", "1 != 2", "it <broke>", "skipped: no network", "skipped"]
    assert found[0].seconds == 1.5
    assert seen(junit(JUNIT, with_class=False))[0] == ("good", "passed")


def test_a_suite_inside_a_suite_is_read_once() -> None:
    inner = b'<testsuite name="i" tests="1"><testcase name="x"/></testsuite>'
    text = b'<testsuite name="o" tests="9">' + inner + b"</testsuite>"
    assert seen(junit(text)) == [("x", "passed")]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "not XML"),
        (b"<testsuite><testcase name='a'/>", "not XML"),
        (b"<testsuite/><testsuite/>", "not XML"),
        (b"<testsuite tests='2'><testcase name='a'/></testsuite>", "counts 2 tests and lists 1"),
        (b"<!DOCTYPE x [<!ENTITY e 'e'>]><testsuite><testcase name='&e;'/></testsuite>", "entities"),
        (b"<!DOCTYPE x SYSTEM 'file:///etc/passwd'><testsuite/>", "entities"),
        (b"<?xml version='1.0' encoding='no-such'?><testsuite/>", "not XML"),
    ],
)
def test_junit_that_proves_nothing_is_refused(text: bytes, says: str) -> None:
    with pytest.raises(UnreadableError, match=says):
        junit(text)


TAP = """\
TAP version 13
# Subtest: outer
    # Subtest: inner, with a comma
    ok 1 - inner, with a comma
      ---
      duration_ms: 1
      not ok 9 - this is a diagnostic
      ...
    not ok 2 - other
    1..2
not ok 1 - outer
# Subtest: leaf
ok 2 - leaf
ok 3 - later # SKIP no network
not ok 4 - some day # TODO
ok 5 - issue \\#7 in #8
ok 6
1..6
# pass 3
"""


def test_tap_points_become_records() -> None:
    assert seen(tap(TAP)) == [
        ("outer > inner, with a comma", "passed"),
        ("outer > other", "failed"),
        ("outer", "failed"),
        ("leaf", "passed"),
        ("later", "skipped"),
        ("some day", "skipped"),
        ("issue #7 in #8", "passed"),
        ("6", "passed"),
    ]


@pytest.mark.parametrize(
    "text", ["1..2\nok 1 - a\nok 2 - b\n", "ok 1 - a\nok 2 - b\n1..2\n", "1..2\r\nok - a\r\nok - b\r\n"]
)
def test_the_plan_may_stand_at_either_end(text: str) -> None:
    assert seen(tap(text)) == [("a", "passed"), ("b", "passed")]


def test_a_subtest_needs_no_title() -> None:
    assert seen(tap("    ok 1 - a\n    1..1\nok 1 - b\n1..1\n")) == [("a", "passed"), ("b", "passed")]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no plan"),
        ("ok 1 - a\n", "no plan"),
        ("1..2\nok 1 - a\n", "plans 2 tests and has 1"),
        ("1..1\nok 1 - a\nok 2 - b\n", "plans 1 tests and has 2"),
        ("1..1\n1..1\nok 1 - a\n", "2 plans"),
        ("1..2\nok 1 - a\nok 1 - b\n", "test 1 comes as number 2"),
        ("1..2\nok 1 - a\nBail out! no disk\n", "Bail out! no disk"),
        ("# Subtest: a\n    ok 1 - b\nok 1 - a\n1..1\n", "subtest 'a' has 0 plans"),
        ("    ok 1 - b\n    1..3\nok 1 - a\n1..1\n", "plans 3 tests and has 1"),
    ],
)
def test_tap_that_proves_nothing_is_refused(text: str, says: str) -> None:
    with pytest.raises(UnreadableError, match=says):
        tap(text)
