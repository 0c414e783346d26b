"""A15: names that git would quote, and names that look like a diff header, are paths like all others."""

NAMES = ("d/naïve file.txt", "x b/y.txt", 'say "hi".txt', "two\nlines.txt", "tab\t.txt", "-n", "a => b")


def test_odd_names_are_reported_and_restored(desk):
    task = desk.task(files=dict.fromkeys(NAMES, b"a\n"))
    submission = desk.work(task, "find . -type f -exec sed -i s/a/b/ {} +")
    assert sorted(submission.changes) == sorted(NAMES)
    assert [desk.applied(task, submission, name) for name in NAMES] == [b"b\n"] * len(NAMES)


def test_an_odd_name_of_a_hidden_test_is_dropped_by_that_name(desk):
    task = desk.task(hidden={**desk.task().hidden, "tests/naïve test.txt": b"secret\n"})
    submission = desk.work(task, "mkdir tests; echo mine > 'tests/naïve test.txt'; sed -i 's/1/2/' f.py")
    verdict = desk.grade(task, submission)
    assert (verdict.score, verdict.provenance["dropped"]) == (
        1.0,
        {"tests/naïve test.txt": "a hidden test stands there"},
    )
