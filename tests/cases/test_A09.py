"""A09: a program built in the repository is left out with a note, and the text beside it is graded."""


def test_a_build_product_is_left_out(desk):
    task = desk.task()
    submission = desk.work(task, "sed -i 's/1/2/' f.py; cp /bin/true ./prog; printf '\\x7fELF' > stub; ar rc l.a f.py")
    assert set(submission.changes) == {"f.py"}
    assert submission.left_out == {"prog": "a build product", "stub": "a build product", "l.a": "a build product"}
    assert desk.grade(task, submission).score == 1.0


def test_other_binary_work_is_kept(desk):
    submission = desk.work(desk.task(), "printf '\\x89PNG\\r\\n\\x00\\xff' > icon.png")
    assert submission.changes["icon.png"].data == b"\x89PNG\r\n\x00\xff"
