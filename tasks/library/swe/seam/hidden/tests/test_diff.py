import itertools

import pytest

from seam import apply, diff, parse


def lines(text):
    """"a b c" as three lines."""
    return "".join(word + "\n" for word in text.split())


def body(text):
    """A patch without its two header lines."""
    return "".join(text.splitlines(keepends=True)[2:])


def numbered(count, **changes):
    words = [f"l{number}" for number in range(1, count + 1)]
    for name, word in changes.items():
        words[int(name[1:]) - 1] = word
    return "".join(f"{word}\n" for word in words if word)


def headers(text):
    return [line for line in text.splitlines() if line.startswith("@@")]


def test_equal_texts():
    assert diff("a\n", "a\n") == ""
    assert diff("", "") == ""


def test_names():
    assert diff("a\n", "b\n", "x/old", "y/new").startswith("--- x/old\n+++ y/new\n@@ -1 +1 @@\n-a\n+b\n")


def test_deletions_come_first():
    assert body(diff(lines("a b c"), lines("x y c"))) == "@@ -1,3 +1,3 @@\n-a\n-b\n+x\n+y\n c\n"


@pytest.mark.parametrize(
    ("old", "new", "wanted"),
    [
        ("", "a b", "@@ -0,0 +1,2 @@\n+a\n+b\n"),
        ("a b", "", "@@ -1,2 +0,0 @@\n-a\n-b\n"),
        ("", "a", "@@ -0,0 +1 @@\n+a\n"),
        ("a", "", "@@ -1 +0,0 @@\n-a\n"),
    ],
)
def test_empty_texts(old, new, wanted):
    assert body(diff(lines(old), lines(new))) == wanted


@pytest.mark.parametrize(
    ("old", "new", "wanted"),
    [
        ("a b c", "a x b c", "@@ -1,0 +2 @@\n+x\n"),
        ("a b c", "a c", "@@ -2 +1,0 @@\n-b\n"),
        ("a b c", "a b c x y", "@@ -3,0 +4,2 @@\n+x\n+y\n"),
        ("a b c", "x a b c", "@@ -0,0 +1 @@\n+x\n"),
    ],
)
def test_without_context(old, new, wanted):
    assert body(diff(lines(old), lines(new), context=0)) == wanted


def test_context_is_cut_at_the_ends():
    assert headers(diff(numbered(9), numbered(9, l2="x"))) == ["@@ -1,5 +1,5 @@"]
    assert headers(diff(numbered(9), numbered(9, l9="x"))) == ["@@ -6,4 +6,4 @@"]
    assert headers(diff(numbered(9), numbered(9, l5="x"))) == ["@@ -2,7 +2,7 @@"]


@pytest.mark.parametrize(
    ("second", "wanted"),
    [
        (9, ["@@ -1,12 +1,12 @@"]),
        (10, ["@@ -1,13 +1,13 @@"]),
        (11, ["@@ -1,14 +1,14 @@"]),
        (12, ["@@ -1,7 +1,7 @@", "@@ -9,7 +9,7 @@"]),
        (13, ["@@ -1,7 +1,7 @@", "@@ -10,7 +10,7 @@"]),
    ],
)
def test_near_changes_share_a_hunk(second, wanted):
    new = numbered(30, l4="x", **{f"l{second}": "y"})
    assert headers(diff(numbered(30), new)) == wanted


@pytest.mark.parametrize(("context", "second", "count"), [(0, 5, 1), (0, 6, 2), (1, 7, 1), (1, 8, 2), (2, 9, 1), (2, 10, 2)])
def test_near_changes_with_other_contexts(context, second, count):
    new = numbered(30, l4="x", **{f"l{second}": "y"})
    assert len(headers(diff(numbered(30), new, context=context))) == count


def test_later_hunks_count_what_came_before():
    old, new = numbered(40), numbered(40, l5="", l6="", l20="x\nx2\nx3", l35="")
    assert headers(diff(old, new)) == ["@@ -2,8 +2,6 @@", "@@ -17,7 +15,9 @@", "@@ -32,7 +32,6 @@"]


@pytest.mark.parametrize(
    ("old", "new", "wanted"),
    [
        ("a\nb", "a\nb\n", " a\n-b\n\\ No newline at end of file\n+b\n"),
        ("a\nb\n", "a\nb", " a\n-b\n+b\n\\ No newline at end of file\n"),
        ("a\nb", "x\nb", "-a\n+x\n b\n\\ No newline at end of file\n"),
        ("a", "b", "-a\n\\ No newline at end of file\n+b\n\\ No newline at end of file\n"),
        ("a", "a\nb", "-a\n\\ No newline at end of file\n+a\n+b\n\\ No newline at end of file\n"),
    ],
)
def test_no_newline_at_the_end(old, new, wanted):
    assert "".join(diff(old, new).splitlines(keepends=True)[3:]) == wanted


@pytest.mark.parametrize("sign", ["\r", "\x0c", "\x0b", "\x1c", "\x85", "\u2028", "\u2029"])
def test_only_a_line_feed_ends_a_line(sign):
    old, new = f"a{sign}b\nc\n", f"a{sign}x\nc\n"
    assert body(diff(old, new)) == f"@@ -1,2 +1,2 @@\n-a{sign}b\n+a{sign}x\n c\n"
    assert apply(old, parse(diff(old, new))) == new


def test_carriage_returns_are_part_of_lines():
    assert body(diff("a\r\nb\r\n", "a\r\nb\n")) == "@@ -1,2 +1,2 @@\n a\r\n-b\r\n+b\n"


def cost(text):
    return sum(line[0] in "+-" for line in body(text).splitlines())


@pytest.mark.parametrize(
    ("old", "new", "edits"),
    [
        ("a b c a b b a", "c b a b a c", 5),
        ("x x", "x x x", 1),
        ("x x x", "x x", 1),
        ("x", "x x", 1),
        ("a x x b", "a x b", 1),
        ("a b a b", "b a b a", 2),
        ("a b c d", "d c b a", 6),
        ("a b c", "x y z", 6),
        ("p a q", "p q a p q", 2),
    ],
)
def test_scripts_are_as_short_as_can_be(old, new, edits):
    assert cost(diff(lines(old), lines(new), context=99)) == edits


def longest_common(old, new):
    row = [0] * (len(new) + 1)
    for one in old:
        before = 0
        for place, other in enumerate(new, 1):
            before, row[place] = row[place], before + 1 if one == other else max(row[place], row[place - 1])
    return row[-1]


def test_all_short_texts():
    words = ["".join(word) for size in range(5) for word in itertools.product("ab", repeat=size)]
    for old, new in itertools.product(words, words):
        patch = diff(lines(" ".join(old)), lines(" ".join(new)), context=1)
        assert cost(patch) == len(old) + len(new) - 2 * longest_common(old, new), (old, new)
        if patch:
            assert apply(lines(" ".join(old)), parse(patch)) == lines(" ".join(new)), (old, new)
