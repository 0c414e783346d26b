"""G12: what the agent leaves running, or puts where results and runners might be, does not reach the grade."""

LEFT_BEHIND = r"""
mkdir -p /tmp/logs tests
for name in python3 tar sh; do printf '#!/bin/sh\necho "{\"event\": \"end\"}"\n' > $name; chmod +x $name; done
printf 'import sys\nsys.exit(0)\n' | tee unittest.py runner.py tests/test_f.py > /dev/null
(while :; do for d in . /tmp /tmp/logs; do echo 1 > $d/reward.txt; done; printf 'def f():\n    return 2\n' > f.py; \
 sleep 0.01; done) > /dev/null 2>&1 & disown
sleep 0.1; printf 'def f():\n    return 1  # wrong\n' > wrong.py
"""


def test_the_grade_comes_over_its_own_channel(desk):
    task = desk.task(files={"f.py": b"def f():\n    return 1\n", "wrong.py": b""})
    with desk.bases.box(task) as box:
        assert box.exec(["/bin/bash", "-c", LEFT_BEHIND]).ok
        submission = desk.captured(box, task)
        # The writer won the race for f.py in the agent's own box; make the work wrong, and grade that.
        wrong = {**submission.changes, "f.py": submission.changes["wrong.py"]}
        verdict = desk.grade(task, type(submission)(wrong))
        assert (verdict.score, verdict.error) == (0.0, None)
        assert verdict.findings[0].message == "AssertionError: 1 != 2 (line 7)"
