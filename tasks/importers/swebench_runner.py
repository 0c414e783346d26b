"""The runner ``swebench``: the row's own evaluation script, its output read and judged by the package ``swebench``.

Nothing is kept from the submission but what the script itself resets: the verdict is that of swebench's own harness.
"""

from __future__ import annotations

import shlex
import tempfile
from pathlib import Path
from typing import Any

from forkgym.sandboxes.base import ExecResult, Sandbox
from forkgym.tasks.base import Submission, Task
from forkgym.tasks.errors import TaskFormatError
from forkgym.tasks.grading.base import Record, Report
from forkgym.tasks.importers.swebench_rows import ASSETS, JUDGED, require_swebench
from forkgym.tasks.solution import place
from forkgym.tasks.submission import apply

MAX_LOG = 64 << 20
SCRIPT = "/eval.sh"
_STAGED = "/image_assets"


def run(box: Sandbox, task: Task, submission: Submission) -> Report:
    """Apply the submission, run the script, judge its output. Raises ``GradingError`` and ``SandboxError``."""
    apply(box, submission, task.workdir)
    result = run_script(box, task)
    return read_log(task, result)


def spec_of_row(task: Task) -> Any:
    """The ``TestSpec`` of swebench for this task. Raises ``TaskFormatError`` if the task's options lack a field."""
    if missing := [key for key in JUDGED if key not in task.grading.options]:
        raise TaskFormatError(f"{task.id}: grading.options: the runner 'swebench' needs {', '.join(missing)}")
    return require_swebench().utils.make_test_spec(dict(task.grading.options))


def script_of(task: Task) -> str:
    """What runs in the sandbox: swebench's script, and the binary files put in place once the test patch is applied."""
    script = str(spec_of_row(task).eval_script)
    start = require_swebench().constants.START_TEST_OUTPUT
    lines = script.split("\n")
    at = next(number for number, line in enumerate(lines) if start in line)
    restore = [_restore(path) for path in _assets(task)]
    return "\n".join([*lines[:at], *restore, *lines[at:]])


def run_script(box: Sandbox, task: Task) -> ExecResult:
    """Run the evaluation script; its output and its trace come together on ``stdout``, as swebench reads them."""
    if assets := _assets(task):
        place(box, _STAGED, assets)
    box.write_file(SCRIPT, script_of(task).encode(), 0o755)
    command = ("/bin/bash", "-c", f"exec /bin/bash {SCRIPT} 2>&1")
    return box.exec(command, cwd=task.workdir, timeout=task.grading.timeout, max_output=MAX_LOG)


def read_log(task: Task, result: ExecResult) -> Report:
    """What swebench makes of the output. Tests that it finds neither passed nor failed count as it counts them."""
    if result.timed_out:
        return Report({}, timed_out=True)
    if result.truncated:
        return Report({}, broken=f"the tests wrote {result.total_bytes} bytes; at most {MAX_LOG} are read")
    with tempfile.NamedTemporaryFile("wb", prefix="forkgym-log-", suffix=".txt") as file:
        file.write(result.stdout.decode("utf-8", "replace").encode())
        file.flush()
        report = eval_report(task, Path(file.name))
    if not report["patch_successfully_applied"]:
        reason = report.get("infra_failure_reason")
        return Report({}, broken="swebench finds no valid run of the tests" + (f" ({reason})" if reason else ""))
    failed = {test for kind in ("FAIL_TO_PASS", "PASS_TO_PASS") for test in report["tests_status"][kind]["failure"]}
    return Report({test: Record(test not in failed) for test in task.grading.tests})


def eval_report(task: Task, log: Path) -> dict[str, Any]:
    """The report of swebench on one log, for a prediction that is not empty."""
    spec = spec_of_row(task)
    prediction = {"instance_id": spec.instance_id, "model_patch": "given", "model_name_or_path": "given"}
    return require_swebench().grading.get_eval_report(spec, prediction, str(log), True)[spec.instance_id]


def _assets(task: Task) -> dict[str, bytes]:
    prefix = f"{ASSETS}/"
    return {path.removeprefix(prefix): data for path, data in task.hidden.items() if path.startswith(prefix)}


def _restore(path: str) -> str:
    target = shlex.quote(path)
    return f'mkdir -p -- "$(dirname -- {target})" && cp -- {shlex.quote(f"{_STAGED}/{path}")} {target}'
