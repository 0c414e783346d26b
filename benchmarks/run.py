"""Measure speed on this machine and write ``benchmarks/RESULTS.md``: ``make bench``.

Exit code 1 if a target was missed. Learning results are made by the scripts in ``benchmarks/learning/``.
"""

from __future__ import annotations

import datetime
import sys
from pathlib import Path

import env_step
import gateway
import import_time
import policies
import sandbox
from harness import describe

from forkgym.sandboxes.bench import machine

RESULTS = Path(__file__).with_name("RESULTS.md")


def main() -> int:
    """Run all sections and write the file."""
    where = describe(machine())
    sections = [import_time.run(), *sandbox.run(), env_step.run(), gateway.run(), policies.run()]
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    head = f"# Speed\n\nWritten by `make bench` on {today}. Machine: {where}.\n"
    RESULTS.write_text("\n".join([head, *(section.markdown() for section in sections)]), encoding="utf-8")
    broken = [line for section in sections for line in section.broken]
    print(f"wrote {RESULTS}")
    for line in broken:
        print(f"missed: {line}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
