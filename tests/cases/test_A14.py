"""A14: copies in a build directory that the repository never tracked are no part of the submission."""

GIT = (
    "export HOME=/tmp GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b;"
    "git init -q . && git add f.py && git commit -q -m start && mkdir -p build/lib && cp f.py build/lib/f.py"
)


def test_untracked_copies_are_left_out(desk):
    task = desk.task(setup=(GIT,))
    submission = desk.work(task, "sed -i 's/1/2/' f.py; cp f.py build/lib/f.py; cp f.py build/lib/g.py; git add -A")
    assert set(submission.changes) == {"f.py"}
    assert submission.left_out == {
        "build/lib/f.py": "not part of the repository at the start",
        "build/lib/g.py": "below a directory that is not part of the repository",
    }
    assert desk.grade(task, submission).score == 1.0
