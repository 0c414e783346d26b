"""Tasks: what is asked and how it is graded, as data.

from forkgym import tasks
training = tasks.load("swe/tiny/*", split="train")
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forkgym.tasks.builders.autobuild import build_from_repo
    from forkgym.tasks.builders.synthesis import synthesize
    from forkgym.tasks.importers.harbor import from_harbor
    from forkgym.tasks.importers.harbor_export import to_harbor
    from forkgym.tasks.importers.swebench_rows import from_swebench
    from forkgym.tasks.loader import load
    from forkgym.tasks.taskset import TaskSet

__all__ = ["TaskSet", "build_from_repo", "from_harbor", "from_swebench", "load", "synthesize", "to_harbor"]

# Found on first use: the loader brings pydantic and yaml, which the contracts beside it do without, and the builders
# bring GitPython, of the extra "swe".
_HOMES = {
    "TaskSet": "forkgym.tasks.taskset",
    "build_from_repo": "forkgym.tasks.builders.autobuild",
    "from_harbor": "forkgym.tasks.importers.harbor",
    "from_swebench": "forkgym.tasks.importers.swebench_rows",
    "load": "forkgym.tasks.loader",
    "synthesize": "forkgym.tasks.builders.synthesis",
    "to_harbor": "forkgym.tasks.importers.harbor_export",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
