"""The other side of ``trl.py``: TRL's GRPOTrainer on given tokens, in an environment of its own without ForkGym.

Its own ``training_step`` runs, with only generation and scoring replaced by what the file of inputs holds.
"""

from __future__ import annotations

import gc
import importlib
import json
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch


def memory(name: str) -> float:
    """``VmRSS`` or ``VmHWM`` of this process, in MB."""
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) / 1024


def measure(update: Callable[[], float], gradient: Callable[[], dict[str, Any]], updates: int, out: Path) -> None:
    """The loss and gradient of a first update, then the time and memory of some more, written into ``out``."""
    loss = update()
    torch.save({name: value.clone() for name, value in gradient().items()}, out / "gradient.pt")
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark begins anew
    before, seconds = memory("VmRSS"), list[float]()
    for _ in range(updates):
        start = time.perf_counter()
        update()
        seconds.append(time.perf_counter() - start)
    peak = memory("VmHWM")
    result = {"loss": loss, "seconds": sorted(seconds)[len(seconds) // 2], "peak": peak, "growth": peak - before}
    (out / "result.json").write_text(json.dumps(result))


def gradients(model: Any) -> dict[str, Any]:
    """By name of the weight."""
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def make_trainer(trl: Any, given: dict[str, Any], out: Path) -> Any:
    """A GRPOTrainer that takes its completions and advantages from ``given``."""
    transformers: Any = importlib.import_module("transformers")
    tokenizers: Any = importlib.import_module("tokenizers")
    words: Any = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<pad>": 0, "<eos>": 1}, unk_token="<pad>"))
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>")
    model = transformers.AutoModelForCausalLM.from_pretrained(given["folder"], dtype=torch.float32)
    rows = len(given["advantages"])
    options = trl.GRPOConfig(
        output_dir=str(out), use_cpu=True, bf16=False, gradient_checkpointing=False, report_to=[], beta=0.0,
        loss_type=given["loss"], epsilon=given["clip_low"], epsilon_high=given["clip_high"], learning_rate=1e-7,
        per_device_train_batch_size=rows, num_generations=rows // 2, steps_per_generation=1, temperature=1.0,
        max_completion_length=given["completion_ids"].shape[1], max_grad_norm=1e9,
    )  # fmt: skip

    class Given(trl.GRPOTrainer):
        def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
            names = ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask", "advantages")
            batch = {name: given[name] for name in (*names, "old_per_token_logps")}
            return {**batch, "num_items_in_batch": given["completion_mask"].sum()}

    data: Any = importlib.import_module("datasets").Dataset.from_dict({"prompt": ["a"] * rows})

    def reward(completions: list[Any], **_: Any) -> list[float]:
        return [0.0 for _ in completions]

    return Given(model=model, reward_funcs=reward, args=options, train_dataset=data, processing_class=tokenizer)


def main() -> None:
    """Inputs and the folder of results are the arguments."""
    given: dict[str, Any] = torch.load(sys.argv[1])
    out = Path(sys.argv[2])
    torch.set_num_threads(given["threads"])
    trainer = make_trainer(importlib.import_module("trl"), given, out)
    optimizer = trainer.create_optimizer()
    trainer.current_gradient_accumulation_steps = 1

    def update() -> float:
        optimizer.zero_grad()
        loss = trainer.training_step(trainer.model, [], None)
        trainer.accelerator.clip_grad_norm_(trainer.model.parameters(), 1e9)
        optimizer.step()
        return float(loss)

    measure(update, lambda: gradients(trainer.model), given["updates"], out)


if __name__ == "__main__":
    main()
