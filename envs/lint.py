"""Style of submitted Python files, by Ruff. Needs the extra ``swe``."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from ruff import find_ruff_bin

from forkgym.envs.base import Evidence
from forkgym.envs.components import applies
from forkgym.tasks.errors import GradingError

RULES = "E,F,W,B"
_TIMEOUT = 60.0
_UNREADABLE = 1_000_000  # a file that is no Python is worse than any other


def lint(evidence: Evidence) -> float:
    """The share of the changed Python files in which Ruff finds no more than before; 1.0 if none was changed.

    Ruff reads the files and runs nothing of them; configuration in the repository is not used. Nothing changed gives
    0.0. Raises ``GradingError`` if Ruff itself fails.
    """
    if not applies(evidence):
        return 0.0
    after = {
        path: change.data
        for path, change in evidence.submission.changes.items()
        if path.endswith(".py") and change.data is not None
    }
    if not after:
        return 1.0
    old = _findings({path: evidence.task.files.get(path, b"") for path in after})
    new = _findings(after)
    return sum(new[path] <= old[path] for path in after) / len(after)


def _findings(files: Mapping[str, bytes]) -> Counter[str]:
    """Number of findings by path. Paths come from a submission, so files are written under numbers instead."""
    names = {f"{number}.py": path for number, path in enumerate(files)}
    with tempfile.TemporaryDirectory(prefix="forkgym-lint-") as folder:
        for name, path in names.items():
            Path(folder, name).write_bytes(files[path])
        command = [find_ruff_bin(), "check", "--isolated", "--no-cache", "--exit-zero", f"--select={RULES}"]
        command += ["--ignore-noqa"]  # else a comment would silence what it stands in
        try:
            done = subprocess.run(
                [*command, "--output-format=json", folder], capture_output=True, timeout=_TIMEOUT, check=True
            )
            found = json.loads(done.stdout)
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            raise GradingError(f"ruff failed: {error}") from error
    counts: Counter[str] = Counter()
    for finding in found:
        broken = finding["code"] in (None, "invalid-syntax")
        counts[names[Path(finding["filename"]).name]] += _UNREADABLE if broken else 1
    return counts
