import pytest

from seam import Conflict, PatchError, apply, diff, parse
from seam.cli import main


def numbered(first, last):
    return [f"l{number}\n" for number in range(first, last + 1)]


OLD = "".join(numbered(1, 40))
NEW = OLD.replace("l10\n", "").replace("l20\n", "l20\nx\ny\n").replace("l30\n", "l3O\n")


@pytest.mark.parametrize("context", [0, 1, 3, 10])
def test_there_and_back(context):
    patch = parse(diff(OLD, NEW, context=context))
    assert apply(OLD, patch) == NEW
    assert apply(NEW, patch, reverse=True) == OLD


@pytest.mark.parametrize(
    ("old", "new"),
    [("", "a\n"), ("a\n", ""), ("", "a"), ("a", ""), ("a\nb", "a\nb\n"), ("a\nb\n", "a\nb"), ("a", "b"), ("\n", ""), ("x\n\n\n", "\n\nx")],
)
def test_ends_of_texts(old, new):
    patch = parse(diff(old, new))
    assert apply(old, patch) == new
    assert apply(new, patch, reverse=True) == old


@pytest.mark.parametrize(
    ("hunk", "old", "new"),
    [
        ("@@ -1,0 +2 @@\n+x\n", "a\nb\n", "a\nx\nb\n"),
        ("@@ -0,0 +1 @@\n+x\n", "a\nb\n", "x\na\nb\n"),
        ("@@ -2,0 +3,2 @@\n+x\n+y\n", "a\nb\n", "a\nb\nx\ny\n"),
        ("@@ -0,0 +1,2 @@\n+x\n+y\n", "", "x\ny\n"),
        ("@@ -2 +1,0 @@\n-b\n", "a\nb\nc\n", "a\nc\n"),
    ],
)
def test_hunks_without_context(hunk, old, new):
    patch = parse(f"--- a\n+++ b\n{hunk}")
    assert apply(old, patch) == new
    assert apply(new, patch, reverse=True) == old


def test_lines_before_the_hunk():
    patch = parse(diff(OLD, NEW))
    head = "".join(f"new {number}\n" for number in range(7))
    assert apply(head + OLD, patch) == head + NEW
    assert apply(head + NEW, patch, reverse=True) == head + OLD


def test_lines_missing_before_the_hunk():
    patch = parse(diff(OLD, NEW))
    gone = "".join(numbered(1, 5))
    assert apply(OLD.removeprefix(gone), patch) == NEW.removeprefix(gone)


def test_lines_between_the_hunks():
    patch = parse(diff(OLD, NEW))
    extra = "".join(f"extra {number}\n" for number in range(9))
    assert apply(OLD.replace("l15\n", extra), patch) == NEW.replace("l15\n", extra)


SAME = "start\n" + "a\nb\nc\n" * 6 + "end\n"


def test_the_nearest_place_counts():
    lines = SAME.splitlines(keepends=True)
    for turn in range(6):
        at = 2 + 3 * turn  # the b of this turn
        new = "".join([*lines[:at], "B\n", *lines[at + 1 :]])
        patch = parse(diff(SAME, new, context=1))
        assert apply(SAME, patch) == new
        assert apply("top\n" + SAME, patch) == "top\n" + new


def test_at_one_distance_before_counts_first():
    patch = parse("--- a\n+++ b\n@@ -4 +4 @@\n-x\n+y\n")
    assert apply("x\nx\nx\no\nx\nx\n", patch) == "x\nx\ny\no\nx\nx\n"


def test_a_move_goes_on_to_the_next_hunk():
    patch = parse("--- a\n+++ b\n@@ -1,2 +1,2 @@\n-one\n+ONE\n mark\n@@ -6 +6 @@\n-x\n+X\n")
    text = "0\n0\n0\none\nmark\nx\n.\n.\nx\n.\n.\nx\n"
    assert apply(text, patch) == "0\n0\n0\nONE\nmark\nx\n.\n.\nX\n.\n.\nx\n"


def test_hunks_stay_in_order():
    patch = parse("--- a\n+++ b\n@@ -3 +3 @@\n-b\n+B\n@@ -4 +4 @@\n-a\n+A\n")
    with pytest.raises(Conflict) as caught:
        apply("a\nx\nb\nx\n", patch)
    assert caught.value.hunk == 2
    assert apply("a\nx\nb\nx\na\n", patch) == "a\nx\nB\nx\nA\n"


def test_a_hunk_that_is_nowhere():
    patch = parse(diff(OLD, NEW))
    with pytest.raises(Conflict) as caught:
        apply(OLD.replace("l21\n", "changed\n"), patch)
    assert caught.value.hunk == 2


def test_the_limit():
    patch = parse(diff("a\n", "b\n"))
    assert apply("x\n" * 20 + "a\n", patch, limit=20) == "x\n" * 20 + "b\n"
    with pytest.raises(Conflict):
        apply("x\n" * 20 + "a\n", patch, limit=19)


def test_no_newline_fits_at_the_end_only():
    patch = parse(diff("a", "b"))
    assert apply("x\na", patch) == "x\nb"
    for text in ("a\n", "a\nx", "a\na\n"):
        with pytest.raises(Conflict):
            apply(text, patch)


def test_a_newline_does_not_fit_a_line_without():
    with pytest.raises(Conflict):
        apply("x\na", parse(diff("a\n", "b\n")))


def test_text_before_the_patch_is_skipped():
    patch = parse("commit 123\nAuthor: x\n\n" + diff("a\n", "b\n", "one", "two"))
    assert (patch.old_name, patch.new_name, len(patch.hunks)) == ("one", "two", 1)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", 1),
        ("--- a\n", 2),
        ("--- a\n--- b\n", 2),
        ("--- a\n+++ b\n@@ what @@\n", 3),
        ("--- a\n+++ b\n@@ -1,2 +1 @@\n-a\n", 3),
        ("--- a\n+++ b\n@@ -1 +1 @@\n-a\n+b\n+c\n", 6),
        ("--- a\n+++ b\n@@ -1,2 +1 @@\n-a\n+b\n+c\n", 6),
        ("--- a\n+++ b\n@@ -1 +1 @@\n-a\n*b\n", 5),
        ("--- a\n+++ b\n@@ -1 +1 @@\n\\ No newline at end of file\n", 4),
    ],
)
def test_bad_patches(text, line):
    with pytest.raises(PatchError) as caught:
        parse(text)
    assert caught.value.line == line


def test_commands(tmp_path, capsys):
    old, new, patch = (tmp_path / name for name in ("old", "new", "patch"))
    old.write_bytes(b"a\r\nb\n")
    new.write_bytes(b"a\r\nc")
    assert main(["diff", str(old), str(new)]) == 1
    patch.write_bytes(capsys.readouterr().out.encode())
    assert main(["apply", str(patch), str(old)]) == 0
    assert old.read_bytes() == b"a\r\nc"
    assert main(["diff", str(old), str(new)]) == 0
    assert main(["apply", "--reverse", str(patch), str(old)]) == 0
    assert old.read_bytes() == b"a\r\nb\n"


def test_a_failed_apply_changes_nothing(tmp_path, capsys):
    text, patch = tmp_path / "text", tmp_path / "patch"
    text.write_text(OLD.replace("l30\n", "other\n"))
    patch.write_text(diff(OLD, NEW))
    before = text.read_bytes()
    assert main(["apply", str(patch), str(text)]) == 2
    assert text.read_bytes() == before
    assert "hunk 3" in capsys.readouterr().err
