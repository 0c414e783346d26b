"""A Harbor task directory of our own: write a greeting in capitals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

FILES = {
    "task.toml": """\
# This comment has no place in a task, and comes back all the same.
schema_version = "1.4"

[task]
name = "Acme/Greet"
keywords = ["demo"]

[metadata]
difficulty = "easy"

[verifier]
timeout_sec = 20.0

[agent]
timeout_sec = 120.0

[environment]
build_timeout_sec = 60.0
cpus = 1
memory_mb = 512
""",
    "instruction.md": """\
<!-- demo-canary GUID 00000000-0000-0000-0000-000000000000 -->

Write the greeting of greet.txt in capitals into out/greet.txt.
""",
    "environment/Dockerfile": """\
FROM debian:bookworm
# what the agent finds
WORKDIR /app
ENV LEVEL=3 MOOD="quite good"
COPY data/ ./
RUN mkdir out && \\
    echo "$LEVEL $MOOD" > out/state
CMD ["sleep", "infinity"]
""",
    "environment/data/greet.txt": "hello\n",
    "environment/data/bin/tool": "#!/bin/sh\necho tool\n",
    "solution/solve.sh": "#!/bin/bash\nset -e\ntr a-z A-Z < greet.txt > out/greet.txt\n",
    "tests/test.sh": """\
#!/bin/bash
bash /tests/check.sh > /logs/verifier/reward.txt
""",
    "tests/check.sh": """\
if [ "$(cat out/greet.txt)" = "$(cat /tests/expected)" ]; then echo 1; else echo 0; fi
""",
    "tests/expected": "HELLO\n",
    "README.md": "For people.\n",
}
Make = Callable[..., Path]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """``make(changes)``: the directory with other files; ``None`` leaves one out. ``toml=`` adds lines to task.toml."""

    def write(changes: dict[str, str | None] | None = None, toml: str = "", name: str = "greet") -> Path:
        root = tmp_path / "harbor" / name
        files: dict[str, str | None] = {**FILES, **(changes or {})}
        if toml:
            files["task.toml"] = f"{files['task.toml']}\n{toml}\n"
        for path, text in files.items():
            (root / path).unlink(missing_ok=True)
            if text is not None:
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(text)
        return root

    return write
