"""Does GRPO raise the held-out pass rate over its SFT start? The demo with several seeds, one after the other.

    .venv/bin/python benchmarks/learning/run.py --seeds 3

Each seed is a ``forkgym demo`` without its time limit: its own order of demonstrations and tasks, its own sampling,
its own held-out seeds. Writes ``benchmarks/learning/RESULTS.md``; runs stay in ``runs/learning``.
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev

sys.path.insert(0, str(Path(__file__).parent.parent))
from harness import describe

from forkgym.sandboxes.bench import machine

ROOT = Path(__file__).parent.parent.parent
RESULTS = Path(__file__).with_name("RESULTS.md")
HOURS = 10.0


@dataclass(frozen=True)
class Outcome:
    """Held-out pass rates of one seed, the rewards of its training steps, and how long it took."""

    seed: int
    before: float
    after_sft: float
    after_grpo: float
    rewards: list[float]
    minutes: float
    model_share: float


def play(seed: int, overrides: list[str]) -> Outcome:
    """One demo, or what an earlier call left of it."""
    out = ROOT / "runs" / "learning" / f"seed-{seed}"
    if not (out / "report.html").exists():
        # All steps of the recipe, however busy the machine is: what is learned must not depend on that.
        whole = f"grpo.time_budget_s={HOURS * 3600}"
        command = [ROOT / ".venv/bin/forkgym", "demo", "--out", out, "--seed", str(seed), whole, *overrides]
        subprocess.run([*map(str, command)], cwd=ROOT, check=True)
    rows = [json.loads(line) for line in (out / "grpo" / "metrics.jsonl").read_text().splitlines()]
    tests = [row["pass_rate"] for row in rows if row["kind"] == "eval"]
    steps = [row for row in rows if row["kind"] == "train"]
    before = [json.loads(line) for line in (out / "before.jsonl").read_text().splitlines()]
    scored = [episode for episode in before if episode["reward"] is not None]
    return Outcome(
        seed,
        sum(episode["verdict"]["resolved"] for episode in scored) / len(scored),
        tests[0],
        tests[-1],
        [row["reward"] for row in steps],
        json.loads((out / "demo.json").read_text())["elapsed"] / 60,
        mean(row["model_share"] for row in steps),
    )


def report(outcomes: list[Outcome], command: str) -> str:
    """The results as Markdown."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    lines = [
        "# Learning",
        "",
        f"Written by `{command}` on {today}. Machine: {describe(machine())}.",
        "",
        "SmolLM2-135M-Instruct on `swe/tiny`: 102 training tasks, 46 held out (38 unseen bugs in seen modules, 8 in",
        "unseen modules). Held-out pass rate, sampled at temperature 1 as in training, two episodes a task.",
        "",
        "| seed | before | after SFT | after GRPO | GRPO gain | minutes | time in the model |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for o in outcomes:
        gain = o.after_grpo - o.after_sft
        rates = " | ".join(f"{rate:.1%}" for rate in (o.before, o.after_sft, o.after_grpo))
        lines.append(f"| {o.seed} | {rates} | {100 * gain:+.1f} points | {o.minutes:.1f} | {o.model_share:.0%} |")
    gains = [100 * (o.after_grpo - o.after_sft) for o in outcomes]
    spread = f", standard deviation {stdev(gains):.1f}" if len(gains) > 1 else ""
    lines += ["", f"GRPO gain over SFT: mean {mean(gains):+.1f} points{spread}, {len(gains)} seeds.", ""]
    lines += ["Training reward of each step:", ""]
    lines += [f"- seed {o.seed}: {' '.join(f'{reward:.2f}' for reward in o.rewards)}" for o in outcomes]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Play the seeds and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("overrides", nargs="*", help="sft.key=value and grpo.key=value")
    options = parser.parse_args()
    outcomes = [play(seed, options.overrides) for seed in range(options.seeds)]
    command = " ".join(["benchmarks/learning/run.py", f"--seeds {options.seeds}", *options.overrides])
    RESULTS.write_text(report(outcomes, command), encoding="utf-8")
    print(f"wrote {RESULTS}")


if __name__ == "__main__":
    main()
