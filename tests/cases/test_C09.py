"""C09: very long output neither stalls nor gets lost: a patch is whole, an observation is cut with a flag."""

import hashlib

from forkgym.sandboxes import create


def test_a_patch_of_20_mb_is_complete_and_one_long_line_is_cut():
    with create("local") as box:
        box.exec("git init -q . && seq -w 2600000 > text && git add -A", timeout=60)
        patch = box.exec("git diff --cached", timeout=60, max_output=None)
        due = box.exec("git diff --cached | sha256sum | cut -c1-64", timeout=60).stdout.strip().decode()
        assert len(patch.stdout) > 20_000_000
        assert hashlib.sha256(patch.stdout).hexdigest() == due
        assert not patch.truncated
        line = box.shell().run("python3 -c \"print('A' * 5000000)\"", max_output=10_000)
        assert line.stdout == b"A" * 9_999 + b"\n"
        assert (line.truncated, line.total_bytes) == (True, 5_000_001)


def test_a_submission_with_20_mb_arrives_whole_and_is_graded(desk):
    task = desk.task()
    with desk.bases.box(task) as box:
        box.exec("seq -w 2600000 > text; sed -i s/1/2/ f.py; git init -q . && git add -A", timeout=60)
        due = box.exec("sha256sum text | cut -c1-64", timeout=60).stdout.strip().decode()
        submission = desk.captured(box, task)
    assert len(submission.changes["text"].data) == 2_600_000 * 8
    assert hashlib.sha256(submission.changes["text"].data).hexdigest() == due
    assert desk.grade(task, submission).score == 1.0
