"""Predictions for a SWE-bench data set, graded here and reported as swebench reports them.

The folder ``out`` gets swebench's own layout, ``logs/run_evaluation/RUN/MODEL/INSTANCE/``, and ``MODEL.RUN.json`` with
the fields that its users know.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forkgym.sandboxes.base import Backend, Sandbox, StrPath
from forkgym.sandboxes.errors import SandboxError
from forkgym.tasks.base import Stage, Task
from forkgym.tasks.errors import GradingError, TaskFormatError
from forkgym.tasks.importers import rowfiles
from forkgym.tasks.importers import swebench_runner as runner
from forkgym.tasks.importers.swebench_rows import Row, patch_command, require_swebench
from forkgym.tasks.workspace import prepare, spec_of

PATCH = "/tmp/patch.diff"
PATCH_TIMEOUT = 300.0
_ABSENT = "forkgym: no such program"


@dataclass(frozen=True)
class Prediction:
    """One line of a file of predictions. ``patch`` is ``None`` or blank for an agent that changed nothing."""

    instance: str
    model: str
    patch: str | None

    @property
    def empty(self) -> bool:
        return self.patch is None or not self.patch.strip()

    @property
    def folder(self) -> str:
        """The model's name as swebench writes it in paths."""
        return self.model.replace("/", "__")


@dataclass(frozen=True)
class Outcome:
    """What became of one prediction. ``stage`` is as in ``Verdict``; ``reason`` says more where it is no verdict."""

    instance: str
    stage: Stage
    reason: str = ""


def read_predictions(path: StrPath, rows: Sequence[Row]) -> dict[str, Prediction]:
    """Predictions by instance: a file (JSON, JSON lines), or ``gold`` for the rows' own patches.

    Raises ``TaskFormatError`` for a malformed file, an instance that is in no row, and one that is predicted twice.
    """
    if str(path) == "gold":
        return {row.id: Prediction(row.id, "gold", str(row.data["patch"])) for row in rows}
    known = {row.id for row in rows}
    found: dict[str, Prediction] = {}
    for place, data in rowfiles.items(Path(path), keyed=True):
        prediction = _prediction(place, data)
        if prediction.instance not in known:
            raise TaskFormatError(f"{place}: instance_id: the data set has no {prediction.instance!r}")
        if prediction.instance in found:
            raise TaskFormatError(f"{place}: instance_id: {prediction.instance!r} is predicted twice")
        found[prediction.instance] = prediction
    if not found:
        raise TaskFormatError(f"{path}: holds no prediction")
    return found


def evaluate(
    task_of: Callable[[str], Task],
    predictions: Mapping[str, Prediction],
    backend: Backend,
    folder: Path,
    *,
    unavailable: Mapping[str, str] | None = None,
    concurrency: int = 4,
    progress: Callable[[Outcome], None] | None = None,
) -> dict[str, Outcome]:
    """Grade the predictions, by instance; ``folder`` keeps the logs, and what is finished there is not run again.

    ``task_of`` makes the task of an instance when its turn comes: a task may carry a whole repository.
    ``unavailable`` maps instances that cannot be graded here to the reason: they are errors.
    """
    lacking = unavailable or {}

    def one(prediction: Prediction) -> Outcome:
        place = folder / prediction.folder / prediction.instance
        if prediction.empty:
            outcome = Outcome(prediction.instance, "empty")
        elif prediction.instance in lacking:
            _clear(place)
            outcome = _told(place, Outcome(prediction.instance, "error", lacking[prediction.instance]))
        else:
            task = task_of(prediction.instance)
            outcome = _kept(place, task, prediction) or _grade(task, prediction, backend, place)
        if progress is not None:
            progress(outcome)
        return outcome

    pool = ThreadPoolExecutor(max_workers=concurrency)
    try:
        return {outcome.instance: outcome for outcome in pool.map(one, predictions.values())}
    finally:
        pool.shutdown(cancel_futures=True)


def missing(task: Task, backend: Backend) -> str:
    """Why the task cannot be graded here, with what mends it; an empty text if nothing is missing."""
    images = backend.capabilities().images
    if images is not None and task.image not in images:
        mend = f"; docker pull {task.image}, then use the docker backend" if "/" in task.image else ""
        return f"backend {backend.name!r} has no image {task.image!r}{mend}"
    try:
        with _box(task, backend) as box:
            return _missing_tool(box, task)
    except (SandboxError, GradingError) as error:
        return f"{type(error).__name__}: {error}"


def run_report(rows: Sequence[Row], predictions: Mapping[str, Prediction], folder: Path) -> dict[str, Any]:
    """The report on what ``folder`` holds, with the fields of swebench's. The id lists part the rows: no id is in two.

    total = completed + incomplete + empty + error, and completed = resolved + unresolved.
    """
    by_class: dict[str, list[str]] = {
        name: [] for name in ("incomplete", "empty_patch", "resolved", "unresolved", "error")
    }
    for row in rows:
        by_class[_class(predictions.get(row.id), folder)].append(row.id)
    reasons, tiers = _infrastructure([predictions[i] for i in by_class["unresolved"] + by_class["error"]], folder)
    environment = require_swebench().infra_failure.TIER_ENVIRONMENT
    lists = {
        **by_class,
        "completed": by_class["resolved"] + by_class["unresolved"],
        "infra_failure": [instance for instance, tier in tiers.items() if tier == environment],
        "ambiguous_failure": [instance for instance, tier in tiers.items() if tier != environment],
        "submitted": list(predictions),
    }
    counted = [name for name in lists if name != "incomplete"]
    return {
        "total_instances": len(rows),
        **{f"{name}_instances": len(lists[name]) for name in counted},
        **{f"{name}_ids": sorted(ids) for name, ids in lists.items()},
        "failure_reasons": dict(sorted(reasons.items())),
        "schema_version": 2,
    }


def _box(task: Task, backend: Backend) -> Sandbox:
    """A sandbox in which the task can begin. It is used once, so no snapshot is kept of it."""
    box = backend.create(spec_of(task))
    try:
        prepare(box, task)
    except BaseException:
        box.close()
        raise
    return box


def _grade(task: Task, prediction: Prediction, backend: Backend, place: Path) -> Outcome:
    _clear(place)
    try:
        with _box(task, backend) as box:
            outcome = _run(box, task, prediction, place)
    except (SandboxError, GradingError) as error:
        outcome = Outcome(prediction.instance, "error", f"{type(error).__name__}: {error}")
    if outcome.stage != "error":
        kept = {"key": _key(task, prediction), "stage": outcome.stage, "reason": outcome.reason}
        (place / "outcome.json").write_text(json.dumps(kept))
    return _told(place, outcome)


def _clear(place: Path) -> None:
    """What an earlier prediction left must not speak for this one."""
    place.mkdir(parents=True, exist_ok=True)
    for name in ("report.json", "test_output.txt", "outcome.json"):
        (place / name).unlink(missing_ok=True)


def _told(place: Path, outcome: Outcome) -> Outcome:
    (place / "run_instance.log").write_text(f"{outcome.stage}: {outcome.reason}\n", "utf-8")
    return outcome


def _run(box: Sandbox, task: Task, prediction: Prediction, place: Path) -> Outcome:
    patch = (prediction.patch or "").encode("utf-8", "surrogatepass")
    (place / "patch.diff").write_bytes(patch)
    (place / "eval.sh").write_text(runner.script_of(task), "utf-8")
    box.write_file(PATCH, patch)
    applied = box.exec(("/bin/bash", "-c", patch_command(PATCH)), cwd=task.workdir, timeout=PATCH_TIMEOUT)
    if not applied.ok:
        output = (applied.stdout + applied.stderr).decode("utf-8", "replace").strip()
        fail = require_swebench().constants.APPLY_PATCH_FAIL
        return Outcome(prediction.instance, "malformed", f"{fail}:\n{output[-2000:]}")
    result = runner.run_script(box, task)
    log = place / "test_output.txt"
    log.write_text(result.stdout.decode("utf-8", "replace"), "utf-8")
    if result.timed_out:
        seconds = f"{task.grading.timeout:g}"
        with log.open("a", encoding="utf-8") as file:
            file.write(f"\n\nTimeout error: {seconds} seconds exceeded.")
        return Outcome(prediction.instance, "timeout", f"the tests took more than {seconds} s")
    report = {"resolved": False} if result.truncated else runner.eval_report(task, log)
    (place / "report.json").write_text(json.dumps({prediction.instance: report}, indent=4))
    much = f"the tests wrote {result.total_bytes} bytes; at most {runner.MAX_LOG} are read" if result.truncated else ""
    return Outcome(prediction.instance, "resolved" if report["resolved"] else "unresolved", much)


def _kept(place: Path, task: Task, prediction: Prediction) -> Outcome | None:
    """The outcome of an earlier run of the same task and patch; an infrastructure error is always tried again."""
    try:
        data = json.loads((place / "outcome.json").read_text())
        if data["key"] == _key(task, prediction):
            return Outcome(prediction.instance, data["stage"], data["reason"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return None


def _key(task: Task, prediction: Prediction) -> str:
    return hashlib.sha256(f"{task.digest}\0{prediction.patch}".encode("utf-8", "surrogatepass")).hexdigest()


def _class(prediction: Prediction | None, folder: Path) -> str:
    if prediction is None:
        return "incomplete"
    if prediction.empty:
        return "empty_patch"
    try:
        report = json.loads((folder / prediction.folder / prediction.instance / "report.json").read_text())
        return "resolved" if report[prediction.instance]["resolved"] else "unresolved"
    except (OSError, ValueError, KeyError, TypeError):
        return "error"


def _infrastructure(failed: Sequence[Prediction], folder: Path) -> tuple[dict[str, str], dict[str, str]]:
    """What swebench suspects behind failures, by instance: reasons and tiers. It changes no class."""
    reasons: dict[str, str] = {}
    tiers: dict[str, str] = {}
    for prediction in failed:
        place = folder / prediction.folder / prediction.instance
        logs = (place / "test_output.txt", place / "run_instance.log")
        if found := require_swebench().infra_failure.classify_logs(*logs):
            reasons[prediction.instance], tiers[prediction.instance] = found
    return reasons, tiers


def _missing_tool(box: Sandbox, task: Task) -> str:
    """Is the program that runs the tests there, once the script has chosen its environment?

    Only a plain "no" is one: a script that this cannot follow is given the benefit of the doubt.
    """
    lines = runner.script_of(task).split("\n")
    start = require_swebench().constants.START_TEST_OUTPUT
    at = next(number for number, line in enumerate(lines) if start in line)
    words = [word for word in next(filter(str.strip, lines[at + 1 :]), "").split() if "=" not in word]
    if not words or "/" in words[0]:
        return ""
    before = next((number for number, line in enumerate(lines) if "<<" in line), at)
    chosen = [line for line in lines[:before] if not line.startswith(("git ", "set ", "#")) and "install" not in line]
    script = "\n".join([*chosen, f'command -v -- "$0" >/dev/null || echo {_ABSENT}'])
    result = box.exec(("/bin/bash", "-c", script, words[0]), cwd=task.workdir)
    if not result.stdout.endswith(f"{_ABSENT}\n".encode()):
        return ""
    return f"image {task.image!r} has no program {words[0]!r}, which runs the tests of {task.grading.options['repo']}"


def _prediction(place: str, data: Any) -> Prediction:
    if not isinstance(data, Mapping):
        raise TaskFormatError(f"{place}: must be an object with instance_id, model_name_or_path and model_patch")
    for field in ("instance_id", "model_name_or_path", "model_patch"):
        if field not in data:
            raise TaskFormatError(f"{place}: {field}: this field is missing")
    instance, model, patch = (data[field] for field in ("instance_id", "model_name_or_path", "model_patch"))  # pyright: ignore
    if not isinstance(instance, str) or not isinstance(model, str):
        raise TaskFormatError(f"{place}: instance_id and model_name_or_path must be texts")
    if model in ("", ".", "..") or "\0" in model:
        raise TaskFormatError(f"{place}: model_name_or_path: {model!r} cannot name a folder")
    if patch is not None and not isinstance(patch, str):
        raise TaskFormatError(f"{place}: model_patch: must be a text or null, not {type(patch).__name__}")  # pyright: ignore
    return Prediction(instance, model, patch)
