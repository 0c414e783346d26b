"""A10: blank and trailing lines are bytes like all others."""


def test_trailing_blanks_are_kept(desk):
    task = desk.task(files={"f.txt": b"a\nb\n\n"})
    submission = desk.work(task, "printf 'a\\nB\\n\\n \\n' > f.txt")
    assert desk.applied(task, submission, "f.txt") == b"a\nB\n\n \n"
