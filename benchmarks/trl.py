"""One update of GRPO beside TRL's GRPOTrainer: same model, tokens and rewards; loss, gradient, time and memory.

python benchmarks/trl.py [--updates N] [--threads N] [--venv FOLDER] [--models NAME ...]

TRL is installed into a virtual environment of its own, made on first use. Both sides run as processes of their own, one
after the other, in float32 on the CPU. Writes TRL.md beside this file.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import shlex
import subprocess
import sys
import tempfile
from dataclasses import fields
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import torch
from transformers import AutoModelForCausalLM
from trl_side import gradients, measure

from forkgym.agents.models import load_language_model
from forkgym.trainers.advantages import group_advantage
from forkgym.trainers.base import Batch
from forkgym.trainers.batch import spread_to_tokens
from forkgym.trainers.recipe_file import from_values
from forkgym.trainers.update import Frozen, Scorer, make_optimizer, policy_update

HERE = Path(__file__).parent
GROUPS, MEMBERS, PROMPT, LONGEST = 2, 4, 192, 96
LOSSES: dict[str, dict[str, Any]] = {
    "grpo": {"aggregation": "seq_mean_token_mean"},
    "dr_grpo": {"aggregation": "seq_mean_token_sum_norm", "l_max": LONGEST},
    "dapo": {"aggregation": "token_mean", "clip_high": 0.28},
}
CLOSE = 1e-5


def make_batch(model: Any, loss: str) -> Batch:
    """Random tokens: a prompt per group, completions of many lengths. Old log-probabilities lie around the model's, so
    that some ratios are clipped."""
    torch.manual_seed(0)
    rows, vocabulary = GROUPS * MEMBERS, int(model.config.vocab_size)
    group = torch.arange(rows) // MEMBERS
    lengths = PROMPT + torch.linspace(LONGEST / 4, LONGEST, rows).long()
    ids = torch.randint(2, vocabulary, (rows, PROMPT + LONGEST))
    ids[:, :PROMPT] = torch.randint(2, vocabulary, (GROUPS, PROMPT))[group]
    position = torch.arange(PROMPT + LONGEST)
    mask = (position >= PROMPT) & (position < lengths[:, None])
    batch = Batch(
        ids=ids, lengths=lengths, mask=mask, behaviour=torch.zeros(mask.shape), turn=torch.zeros_like(ids),
        version=torch.zeros_like(ids), member=torch.arange(rows), group=group,
        reward=torch.tensor([1.0, 0.0, 0.0, 0.5, 0.0, 1.0, 1.0, 0.0]).double(),
        truncated=torch.zeros(rows, dtype=torch.bool), advantage=torch.zeros(mask.shape),
        episodes=[str(row) for row in range(rows)],
    )  # fmt: skip
    now = Scorer(model, torch.float32, 1.0, 1024).whole(batch)
    batch.behaviour = torch.where(mask, (now + 0.2 * torch.randn(mask.shape)).clamp(max=0), 0.0)
    std = "none" if loss == "dr_grpo" else "sample"
    each = group_advantage(batch.reward, group, baseline="mean", std=std, eps=1e-4, tolerance=0.0)
    batch.advantage = spread_to_tokens(batch, each)
    return batch


def for_trl(batch: Batch, folder: str, loss: str) -> dict[str, Any]:
    """The same as TRL names it."""
    mask = batch.mask[:, PROMPT:]
    return {
        "folder": folder,
        "loss": loss,
        "clip_low": 0.2,
        "clip_high": LOSSES[loss].get("clip_high", 0.2),
        "prompt_ids": batch.ids[:, :PROMPT],
        "prompt_mask": torch.ones_like(batch.ids[:, :PROMPT]),
        "completion_ids": torch.where(mask, batch.ids[:, PROMPT:], 0),
        "completion_mask": mask.long(),
        "advantages": batch.advantage[:, PROMPT],
        "old_per_token_logps": batch.behaviour[:, PROMPT:],
    }


def ours(given: dict[str, Any], out: Path) -> None:
    """Our update on the inputs, with the options of a recipe."""
    torch.set_num_threads(given["threads"])
    model = cast("Any", AutoModelForCausalLM).from_pretrained(given["folder"], dtype=torch.float32)
    objective = {"clip_low": 0.2, "clip_high": 0.2, **LOSSES[given["loss"]]}
    values = {"algorithm": "grpo", "objective": objective, "optimizer": {"lr": 1e-7, "max_grad_norm": 1e9}}
    recipe: Any = from_values({**values, "steps": 1, "out": str(out)}, "benchmark")
    batch = Batch(**given["batch"])
    optimizer = make_optimizer(model, recipe.optimizer)
    scorer = Scorer(model, torch.float32, 1.0, recipe.batch.micro_batch_tokens)
    rows = torch.arange(len(batch.lengths))
    measure(
        lambda: policy_update(scorer, optimizer, batch, rows, Frozen(), recipe).loss,
        lambda: gradients(model),
        given["updates"],
        out,
    )


def saved(name: str, folder: Path) -> str:
    """A folder with the weights of a model, both sides' starting point."""
    load_language_model(name).model.save_pretrained(folder)
    return str(folder)


def compare(python: Path, name: str, loss: str, folder: str, options: argparse.Namespace, scratch: Path) -> str:
    """One row of the table."""
    model = load_language_model(name).model
    batch = make_batch(model, loss)
    del model
    given = for_trl(batch, folder, loss) | {"updates": options.updates, "threads": options.threads}
    given["batch"] = {field.name: getattr(batch, field.name) for field in fields(batch)}
    torch.save(given, scratch / "given.pt")
    found: dict[str, dict[str, float]] = {}
    sides = {"ours": [sys.executable, __file__, "--side"], "trl": [str(python), "-P", str(HERE / "trl_side.py")]}
    for side, command in sides.items():
        (scratch / side).mkdir(exist_ok=True)
        subprocess.run([*command, str(scratch / "given.pt"), str(scratch / side)], check=True, cwd=scratch)
        found[side] = json.loads((scratch / side / "result.json").read_text())
    a, b = (torch.load(scratch / side / "gradient.pt") for side in ("ours", "trl"))
    assert a.keys() == b.keys(), sorted(a.keys() ^ b.keys())
    apart = max(float((a[key] - b[key]).abs().max()) for key in a)
    largest = max(float(value.abs().max()) for value in b.values())
    x, y = found["ours"], found["trl"]
    distance = abs(x["loss"] - y["loss"])
    verdict = "yes" if max(distance, apart) <= CLOSE else "NO"
    cells = (
        name, loss, f"{x['loss']:.6f}", f"{distance:.1e}", f"{apart:.1e} of {largest:.1e}", verdict,
        f"{x['seconds'] / y['seconds']:.2f} ({x['seconds']:.3f} s / {y['seconds']:.3f} s)",
        f"{x['peak'] / y['peak']:.2f} ({x['peak']:.0f} / {y['peak']:.0f} MB)",
        f"{x['growth']:.0f} / {y['growth']:.0f} MB",
    )  # fmt: skip
    return "| " + " | ".join(cells) + " |"


def environment(folder: Path) -> Path:
    """The Python of TRL's virtual environment, with the same torch as ours."""
    python = folder / "bin" / "python"
    if not python.is_file():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    have = subprocess.run([str(python), "-c", "import trl"], capture_output=True, check=False, cwd=folder)
    if have.returncode:
        torch_version = version("torch").partition("+")[0]
        subprocess.run([str(python), "-m", "pip", "install", "-q", f"torch=={torch_version}", "trl"], check=True)
    return python


def main() -> None:
    """Compare, print, write TRL.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--updates", type=int, default=7)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--venv", type=Path, default=Path("/var/tmp/trl-venv"))
    parser.add_argument("--models", nargs="+", default=["tiny-random", "smollm2-135m"])
    parser.add_argument("--side", nargs=2, type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        ours(torch.load(options.side[0]), options.side[1])
        return
    python = environment(options.venv)
    asked = "from importlib.metadata import version as v; print(v('trl'), v('torch'), v('transformers'))"
    trl, *theirs = subprocess.run([str(python), "-c", asked], capture_output=True, text=True, check=True).stdout.split()
    rows: list[str] = []
    with tempfile.TemporaryDirectory() as scratch:
        for name in options.models:
            folder = saved(name, Path(scratch) / name)
            for loss in LOSSES:
                rows.append(compare(python, name, loss, folder, options, Path(scratch)))
                print(rows[-1], flush=True)
    command = shlex.join(["python", "benchmarks/trl.py", *sys.argv[1:]])
    (HERE / "TRL.md").write_text(
        HEAD.format(
            date=datetime.date.today().isoformat(),
            machine=f"{platform.machine()}, {options.threads} threads",
            command=command,
            trl=trl,
            theirs=" / ".join(theirs),
            mine=f"{version('torch')} / {version('transformers')}",
            size=f"{GROUPS} groups of {MEMBERS}; prompts of {PROMPT}, completions of {LONGEST // 4} to {LONGEST}",
        )
        + "\n".join(rows)
        + "\n"
    )


HEAD = """# One update beside TRL's GRPOTrainer

{date}, {machine}, `{command}`. TRL {trl} (torch / transformers {theirs}), ForkGym with {mine}. {size} tokens;
CPU, float32, no gradient checkpointing, a whole batch at once in TRL, the recipes' default micro-batches here. Both are
given the same tokens, advantages (computed here from the rewards) and old log-probabilities, some of them beyond the
clip. TRL's own `training_step` runs with generation and scoring replaced. Ratios are ours / TRL's: below 1 ours is
faster or lighter. Time is the median of the updates after the first, optimizer step included; memory is the resident
set at its peak, and how much of it the updates add to what was there before them. "within" means loss and every entry
of the gradient differ by at most 1e-5.

| model | loss | value | loss apart | gradient apart, of largest | within | time | peak memory | added by updates |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
"""

if __name__ == "__main__":
    main()
