"""A task as the files of its folder, in the ordinary format."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

import yaml

from forkgym.sandboxes.base import Limits
from forkgym.tasks import archive
from forkgym.tasks.base import Task
from forkgym.tasks.folder import ARCHIVE, ORIGIN, PROOF_FILE, SOLUTION, TASK_FILE
from forkgym.tasks.verify import Proof


class _Dumper(yaml.SafeDumper):
    """Texts of several lines as blocks, so that people can read them."""


def _text(dumper: _Dumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _text)


def contents(task: Task, proof: Proof | None = None) -> dict[str, bytes]:
    """Path to bytes of everything in the folder of one task; without a proof where none is given."""
    written = {
        TASK_FILE: yaml.dump(_model(task), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110).encode()
    }
    if task.start:
        written[ARCHIVE] = archive.pack(task.start)
    if proof is not None:
        whole = {"schema": 1, "tasks": {task.id: proof.as_dict()}}
        written[PROOF_FILE] = (json.dumps(whole, indent=1, sort_keys=True) + "\n").encode()
    written |= {f"{ORIGIN}/{path}": data for path, data in task.origin.items()}
    written |= {f"hidden/{path}": data for path, data in task.hidden.items()}
    written |= {f"hidden/{SOLUTION}/{path}": data for path, data in task.oracle.items() if data is not None}
    return written


def _model(task: Task) -> Mapping[str, Any]:
    grading = task.grading
    removed = sorted(path for path, data in task.oracle.items() if data is None)
    return {
        "schema": 1,
        "id": task.id,
        "family": task.family,
        "split": task.split,
        "license": task.license,
        "source": task.source,
        "instruction": task.instruction,
        "image": task.image,
        "setup": list(task.setup),
        **_unusual(task),
        "budget": {"turns": task.budget.turns, "seconds": task.budget.seconds},
        **({"removed": removed} if removed else {}),
        "grading": {
            "runner": grading.runner,
            "timeout": grading.timeout,
            **({"options": dict(grading.options)} if grading.options else {}),
            "tests": list(grading.tests),
        },
        **({"params": dict(task.params)} if task.params else {}),
    }


def _unusual(task: Task) -> dict[str, Any]:
    """What most tasks do not say, where it is not what a task.yaml means by silence."""
    names = ("workdir", "solve", "user", "submits", "tools")
    usual = {field.name: field.default for field in fields(Task) if field.name in names}
    found = {name: getattr(task, name) for name in names if getattr(task, name) != usual[name]}
    found |= {"tools": list(task.tools)} if "tools" in found else {}
    found |= {"env": dict(task.env)} if task.env else {}
    return found | ({"limits": asdict(task.limits)} if task.limits != Limits() else {})
