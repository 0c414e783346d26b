"""Judging a submission: ``grade(task, submission, bases.box) -> Verdict``."""

from forkgym.tasks.grading.grade import RUNNERS, grade, judge

__all__ = ["RUNNERS", "grade", "judge"]
