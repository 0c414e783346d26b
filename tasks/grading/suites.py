"""The runner ``unittest-suite``: unittest modules of a repository, in one process with the code that they test.

(``unittest`` keeps them apart, and is for code that takes and gives plain data.) Ids are dotted names below the working
directory: ``tests.test_a.TestA.test_x``. Options: ``python`` (default ``python3``) and ``path`` (directories put on
``sys.path`` first; default the working directory).
"""

from __future__ import annotations

from forkgym.tasks.grading.pytests import PYTHON_CONFIGURATION, guest_plan
from forkgym.tasks.grading.repository import Job, Plan, Tool


def plan(job: Job) -> Plan:
    """Load each listed test by its name, and run them with a canary among them."""
    return guest_plan(job, "suites", {})


def files(test: str) -> list[str]:
    """Where the module of a dotted name may stand."""
    parts = test.split(".")
    return ["/".join(parts[:length]) + ".py" for length in range(1, len(parts) - 1)]


UNITTEST_SUITE = Tool(plan, configuration=PYTHON_CONFIGURATION, locate=files, options=("python", "path"))
