"""Does PPO raise the held-out pass rate, and does a critic that is told more explain more? On real episodes.

    .venv/bin/python benchmarks/learning/critic.py [ppo.key=value ...]

Trains by ``sft-tiny`` and then ``ppo-tiny`` into ``runs/critic``, going on with what an earlier call left there. Then
fits two critics that differ in nothing but their privileged inputs to the episodes of that run, three seeds each, and
compares how much of the returns of episodes they were not fitted to they explain. Writes ``CRITIC.md``.
"""

from __future__ import annotations

import datetime
import subprocess
import sys
from pathlib import Path
from statistics import mean

sys.path.insert(0, str(Path(__file__).parent.parent))
import torch
from harness import describe
from torch import Tensor

from forkgym.agents.base import Episode
from forkgym.agents.records import read_episodes
from forkgym.sandboxes.bench import machine
from forkgym.trainers import checkpoint
from forkgym.trainers.batch import build_batch, keep_trainable
from forkgym.trainers.critic import explained_variance, make_critic, privileged_inputs, states
from forkgym.trainers.kinds import PrivilegedInput
from forkgym.trainers.loss_sections import GaeSection
from forkgym.trainers.metrics import read_metrics
from forkgym.trainers.models import load_model
from forkgym.trainers.recipe_file import load_ppo
from forkgym.trainers.sections import CriticSection
from forkgym.trainers.sequences import Sequences, estimate, rewards

ROOT = Path(__file__).parent.parent.parent
RUNS = ROOT / "runs" / "critic"
RESULTS = Path(__file__).with_name("CRITIC.md")
INPUTS: tuple[PrivilegedInput, ...] = ("fraction", "files_changed", "gold_distance")
STEPS_READ, UPDATES, SEEDS = 8, 300, 3


def train(recipe: str, *overrides: str) -> Path:
    """The folder of a run, which is made or finished if need be."""
    out = RUNS / recipe.partition("-")[0]
    command = [ROOT / ".venv/bin/forkgym", "train", recipe, f"out={out}", *overrides, "--resume"]
    subprocess.run([*map(str, command)], cwd=ROOT, check=True)
    return out


def episodes_of(run: Path) -> list[Episode]:
    """The scored episodes of the first steps."""
    files = sorted((run / "episodes").glob("train-*.jsonl"))[:STEPS_READ]
    return keep_trainable([episode for file in files for episode in read_episodes(file).episodes]).episodes


def explained(run: Path, start: Path) -> dict[str, list[float]]:
    """Explained variance of held-out returns by kind of critic, one number per seed."""
    recipe = load_ppo("ppo-tiny")
    language = load_model(recipe.model)
    checkpoint.load_weights(checkpoint.find(start), language.model)
    episodes = episodes_of(run)
    batch = build_batch(episodes)
    sequences = Sequences.of(batch)
    reward = rewards(sequences, batch, episodes, "final")
    found = estimate(sequences, reward, torch.zeros(int(batch.mask.sum())), GaeSection(level="turn"))
    hidden, _ = states(language.model.base_model, batch, torch.bfloat16, 1024)
    numbers = {task: n for n, task in enumerate(dict.fromkeys(episode.task for episode in episodes))}
    fitted = torch.tensor([numbers[episode.task] % 2 == 0 for episode in episodes])[batch.member]
    fit = fitted[batch.mask.nonzero(as_tuple=True)[0]] & found.valued
    rest = ~fitted[batch.mask.nonzero(as_tuple=True)[0]] & found.valued
    result: dict[str, list[float]] = {}
    for name, names in (("trajectory alone", ()), ("with " + ", ".join(INPUTS), INPUTS)):
        inputs = privileged_inputs(batch, episodes, names)
        result[name] = [
            _fit(language, CriticSection(inputs=names), seed, hidden, inputs, found.target, fit, rest)
            for seed in range(SEEDS)
        ]
    return result


def _fit(
    language: object, section: CriticSection, seed: int, hidden: Tensor, inputs: Tensor, target: Tensor,
    fit: Tensor, rest: Tensor,
) -> float:  # fmt: skip
    critic = make_critic(language, section, seed)  # pyright: ignore[reportArgumentType]
    optimizer = torch.optim.AdamW(critic.parameters(), lr=1e-3, weight_decay=1e-2)
    for _ in range(UPDATES):
        optimizer.zero_grad()
        value = critic(hidden[fit], inputs[fit])[0]
        (value - target[fit]).square().mean().backward()
        optimizer.step()
    with torch.no_grad():
        return explained_variance(target[rest], critic(hidden[rest], inputs[rest])[0])


def main() -> None:
    """Train, fit, and write the file."""
    sft = train("sft-tiny")
    ppo = train("ppo-tiny", f"model.start_from={sft}", *sys.argv[1:])
    rows = read_metrics(ppo)
    tests = [row["pass_rate"] for row in rows if row["kind"] == "eval"]
    steps = [row for row in rows if row["kind"] == "train"]
    curve = " ".join(f"{row['reward']:.2f}" for row in steps)
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    lines = [
        "# PPO and its critic",
        "",
        f"Written by `{' '.join(['benchmarks/learning/critic.py', *sys.argv[1:]])}` on {today}. "
        f"Machine: {describe(machine())}.",
        "",
        f"SmolLM2-135M-Instruct on `swe/tiny`: held-out pass rate {tests[0]:.1%} after SFT, {tests[-1]:.1%} after "
        f"{len(steps)} steps of `ppo-tiny`. Reward of each step: {curve}.",
        "",
        f"Critics fitted to the episodes of its first {min(STEPS_READ, len(steps))} steps, those of half of the tasks, "
        "and asked about the others. Explained variance of the returns as each turn begins, one number a seed:",
        "",
        "| critic reads | explained variance | mean |",
        "| --- | --- | --- |",
    ]
    for name, found in explained(ppo, sft).items():
        lines.append(f"| {name} | {' '.join(f'{value:.2f}' for value in found)} | {mean(found):.2f} |")
    RESULTS.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"wrote {RESULTS}")


if __name__ == "__main__":
    main()
