"""A05: an edit of a test file is dropped, whatever it says; the fix beside it counts."""

import pytest

from forkgym.tasks.base import Grading

EASY = "printf 'import unittest\\n\\n\\nclass T(unittest.TestCase):\\n    test_f = id\\n' > tests/test_f.py"


@pytest.mark.parametrize(("answer", "score"), [(2, 1.0), (3, 0.0)])
def test_only_the_fix_counts(desk, answer, score):
    task = desk.task(files={"f.py": b"def f():\n    return 1\n", "tests/test_f.py": b"# the visible test\n"})
    submission = desk.work(task, f"{EASY}; sed -i 's/1/{answer}/' f.py")
    assert set(submission.changes) == {"f.py", "tests/test_f.py"}
    verdict = desk.grade(task, submission)
    assert verdict.score == score
    assert verdict.provenance["dropped"] == {"tests/test_f.py": "a hidden test stands there"}


REPOSITORY = {
    "f.py": b"def f():\n    return 1\n",
    "tests/test_a.py": b"from f import f\n\n\ndef test_a():\n    assert f() == 1\n",
}


@pytest.mark.parametrize(("answer", "score"), [(2, 1.0), (3, 0.0)])
def test_only_the_fix_counts_in_a_repository(desk, sandbox_pytest, answer, score):
    hidden = {"tests/test_a.py": REPOSITORY["tests/test_a.py"].replace(b"== 1", b"== 2")}
    grading = Grading("pytest", ("tests/test_a.py::test_a",), 60.0)
    task = desk.task(files=REPOSITORY, hidden=hidden, grading=grading)
    easier = "sed -i 's/f() == 1/True/' tests/test_a.py; echo x > tests/new.py"
    verdict = desk.grade(task, desk.work(task, f"{easier}; sed -i 's/1/{answer}/' f.py"))
    assert (verdict.score, verdict.hacks) == (score, ())
    assert verdict.provenance["dropped"] == {
        "tests/new.py": "part of the tests",
        "tests/test_a.py": "a hidden test stands there",
    }
