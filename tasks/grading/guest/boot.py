"""The first lines of the runner and of its worker: name the sources that were sent, and start the last one."""

import json
import sys
import types
from typing import Any


def load(sources: "dict[str, str]") -> Any:
    """Make modules of texts, in order, so that each may import those before it; the last one is returned."""
    module: Any = None
    for name, text in sources.items():
        module = sys.modules[name] = types.ModuleType(name)
        exec(compile(text, name, "exec"), module.__dict__)
    return module


if sys.argv[1:]:
    workdir, memory = json.loads(sys.argv[2])
    load(json.loads(sys.argv[1])).main(int(sys.argv[3]), workdir, memory)
else:
    sent = json.load(sys.stdin)
    load(sent["sources"]).main(sent["boot"], sent["sources"], sent["job"])
