"""A12: nothing submitted, nonsense submitted and wrong work are told apart, and only work starts a sandbox."""

from collections import Counter

from forkgym.tasks.grading import grade
from forkgym.tasks.submission import from_json, to_json


def test_classes_add_up(desk):
    task = desk.task()
    started = []

    def clean(wanted):
        started.append(wanted.id)
        return desk.bases.box(wanted)

    wrong = to_json(desk.work(task, "sed -i 's/1/3/' f.py"))
    verdicts = [grade(task, from_json(text), clean) for text in ("", None, "\n  \n", wrong, "diff --git a/f b/f")]
    assert [verdict.stage for verdict in verdicts] == ["empty", "empty", "empty", "unresolved", "malformed"]
    assert Counter(verdict.score for verdict in verdicts) == {0.0: 5}
    assert started == ["case"]
