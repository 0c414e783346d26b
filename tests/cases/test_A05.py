"""A05: an edit of a test file is dropped, whatever it says; the fix beside it counts."""

import pytest

EASY = "printf 'import unittest\\n\\n\\nclass T(unittest.TestCase):\\n    test_f = id\\n' > tests/test_f.py"


@pytest.mark.parametrize(("answer", "score"), [(2, 1.0), (3, 0.0)])
def test_only_the_fix_counts(desk, answer, score):
    task = desk.task(files={"f.py": b"def f():\n    return 1\n", "tests/test_f.py": b"# the visible test\n"})
    submission = desk.work(task, f"{EASY}; sed -i 's/1/{answer}/' f.py")
    assert set(submission.changes) == {"f.py", "tests/test_f.py"}
    verdict = desk.grade(task, submission)
    assert verdict.score == score
    assert verdict.provenance["dropped"] == {"tests/test_f.py": "a hidden test stands there"}
