"""A07: a repository that still holds the fix, in any corner of its history, does not verify."""

import pytest

from forkgym.tasks import leaks

START = (
    "export HOME=/tmp GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b;"
    "git init -q -b main . && git add f.py && git commit -q -m start && "
)
LATER = "sed -i 's/return 1/return 2/' f.py && git commit -q -a -m fix"
BACK = "git reset -q --hard HEAD~1"


def problems(desk, setup):
    task = desk.task(setup=(START + setup,))
    with desk.bases.box(task) as box:
        return leaks.find(box, task)


def test_a_clean_history_is_clean(desk):
    assert problems(desk, "true") == []


@pytest.mark.parametrize(
    ("setup", "says"),
    [
        (f"git checkout -q -b later && {LATER} && git checkout -q main", "commits that are no ancestors of HEAD"),
        (f"{LATER} && git tag v2 && {BACK}", "commits that are no ancestors of HEAD"),
        (f"{LATER} && {BACK}", "commits that are no ancestors of HEAD"),
        (f"{LATER} && {BACK} && git reflog expire --expire=now --all", "unreachable objects"),
        ("git remote add origin https://example.org/x.git", "names a remote"),
        ("sed -i 's/1/2/' f.py && git stash -q", "stashed work"),
    ],
)
def test_what_is_left_of_the_future_is_named(desk, setup, says):
    assert any(says in problem for problem in problems(desk, setup))
