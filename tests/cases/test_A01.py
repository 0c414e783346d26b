"""A01: a last line without, or with, its newline arrives as it was; what is broken on the way is called malformed."""

import pytest

from forkgym.tasks.submission import from_json, to_json


@pytest.mark.parametrize("end", ["", "\\n", "\\n\\n"])
def test_the_last_newline_is_kept(desk, end):
    task = desk.task(files={"f.txt": b"a\nb\nc\n"})
    submission = desk.work(task, f"printf 'a\\nB\\nc{end}' > f.txt")
    expected = b"a\nB\nc" + end.replace("\\n", "\n").encode()
    assert submission.changes["f.txt"].data == expected
    assert desk.applied(task, submission, "f.txt") == expected


def test_the_reported_patch_is_malformed_and_no_failed_test(desk):
    patch = "diff --git a/f.txt b/f.txt\nindex de98044..7be73ce 100644\n--- a/f.txt\n+++ b/f.txt\n"
    verdict = desk.grade(desk.task(), from_json(patch + "@@ -1,3 +1,3 @@\n a\n-b\n+B\n c"))
    assert (verdict.stage, verdict.score) == ("malformed", 0.0)
    assert verdict.findings[0].message.startswith("not a submission: ")


@pytest.mark.parametrize("cut", [1, 2, 40])
def test_a_submission_cut_on_its_way_is_malformed(desk, cut):
    task = desk.task()
    text = to_json(desk.work(task, "printf 'def f():\\n    return 2\\n' > f.py"))
    assert desk.grade(task, from_json(text)).score == 1.0
    verdict = desk.grade(task, from_json(text[:-cut]))
    assert (verdict.stage, verdict.score) == ("malformed", 0.0)
