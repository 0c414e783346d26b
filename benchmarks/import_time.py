"""How long a new interpreter takes to import ForkGym, beside Python alone and Gymnasium alone.

python benchmarks/import_time.py [N]
"""

from __future__ import annotations

import subprocess
import sys

from harness import Section

from forkgym.sandboxes.bench.timing import measure_command

TARGET = 250.0
CODES = {
    "python alone": "pass",
    "import gymnasium": "import gymnasium",
    "import forkgym": "import forkgym",
    "forkgym --help": "from forkgym.cli.main import main; main(['--help'])",
}


def run(n: int = 20) -> Section:
    """Whole processes, from start to exit."""
    section = Section("Import", ["what", "p50 / p95 ms", "target (p50)"])
    for name, code in CODES.items():
        timing = measure_command([sys.executable, "-P", "-c", code], n)
        target = section.check(name, timing.p50, TARGET) if name == "import forkgym" else ""
        section.rows.append((name, str(timing), target))
    loaded = "import forkgym, sys; sys.exit('torch' in sys.modules)"
    if subprocess.run([sys.executable, "-P", "-c", loaded], check=False).returncode:
        section.broken.append("import forkgym loads torch")
    section.notes.append("Times are of whole processes, so they include starting Python.")
    return section


if __name__ == "__main__":
    sys.stdout.write(run(*map(int, sys.argv[1:2])).markdown())
