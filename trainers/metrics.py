"""Numbers of a run: computed here, written as JSON lines and, where installed, to TensorBoard."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from forkgym.agents.base import Episode
from forkgym.trainers.update import Update


class Clock:
    """Wall seconds by phase."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Generator[None]:
        """Add the seconds of the body to ``name``."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start

    @property
    def total(self) -> float:
        return sum(self.seconds.values())


def episode_metrics(episodes: Sequence[Episode], attempts: Sequence[Episode]) -> dict[str, float]:
    """Means over the scored ``episodes``, and failures by reason over all ``attempts``, retried ones included."""
    scored = [e for e in episodes if e.reward is not None]
    result: dict[str, float] = {"episodes": len(episodes), "scored": len(scored)}
    if scored:
        result["reward"] = sum(e.reward or 0.0 for e in scored) / len(scored)
        result["pass_rate"] = sum(bool((e.verdict or {}).get("resolved")) for e in scored) / len(scored)
        result["truncated_rate"] = sum(e.status == "truncated" for e in scored) / len(scored)
        result["turns"] = sum(len(e.steps) for e in scored) / len(scored)
        for name in sorted({key for e in scored for key in e.metrics if key.startswith("reward/")}):
            result[name] = sum(e.metrics.get(name, 0.0) for e in scored) / len(scored)
        different = {(e.group, *(tuple(segment.ids) for segment in e.segments)) for e in scored}
        result["duplicate_rate"] = 1.0 - len(different) / len(scored)
        sampled = sum(sum(segment.sampled) for e in scored for segment in e.segments)
        result["tokens_per_episode"] = sampled / len(scored)
        result["hack_rate"] = sum(bool((e.verdict or {}).get("hacks")) for e in scored) / len(scored)
    failed = Counter(e.reason for e in attempts if e.status == "failed")
    result["failure_rate"] = sum(failed.values()) / len(attempts) if attempts else 0.0
    for reason, count in failed.items():
        result[f"failure_rate/{reason}"] = count / len(attempts)
    result["sampled_tokens"] = sum(sum(segment.sampled) for e in attempts for segment in e.segments)
    return result


def time_metrics(attempts: Sequence[Episode], clock: Clock, model_seconds: float) -> dict[str, float]:
    """Wall seconds by phase of one step, sampled tokens per second, and the share of the time spent in the model.

    ``model_seconds`` are the wall seconds of the rollout in which the model computed; training counts whole.
    ``seconds/env`` adds up over episodes that run side by side.
    """
    rollout, train = clock.seconds.get("rollout", 0.0), clock.seconds.get("train", 0.0)
    sampled = sum(sum(segment.sampled) for e in attempts for segment in e.segments)
    return {
        **{f"seconds/{name}": value for name, value in clock.seconds.items()},
        "seconds/env": sum(step.seconds for e in attempts for step in e.steps),
        "tokens_per_second": sampled / rollout if rollout else 0.0,
        "model_share": (model_seconds + train) / clock.total if clock.total else 0.0,
    }


def update_metrics(updates: Sequence[Update]) -> dict[str, float]:
    """Numbers of a step's updates: mean loss and gradient norm, and over all their tokens the entropy and, of policy
    updates, ratio and clip fraction. ``mismatch`` is taken from the first update, whose log-probabilities are those
    before any change.
    """
    norms = [u.grad_norm for u in updates if u.grad_norm is not None]
    result: dict[str, float] = {"updates": len(norms)}
    if not norms:
        return result
    ratio, clipped, entropy = (torch.cat([u.stats.flat(n) for u in updates]) for n in ("ratio", "clipped", "entropy"))
    first = next(u.stats for u in updates if u.grad_norm is not None)
    result |= {
        "loss": sum(u.loss for u in updates) / len(updates),
        "grad_norm": sum(norms) / len(norms),
        "trained_tokens": first.flat("logp").numel(),
        "entropy": entropy.mean().item(),
    }
    if ratio.numel():
        result |= {
            "ratio_mean": ratio.mean().item(),
            "ratio_max": ratio.max().item(),
            "clip_fraction": clipped.mean().item(),
            **mismatch_metrics(first.flat("logp"), first.flat("behaviour")),
        }
    return result


def mismatch_metrics(train: Tensor, behaviour: Tensor) -> dict[str, float]:
    """How the trainer's log-probabilities [N], before the update, differ from the sampler's for the same tokens.

    ``ess`` is the effective sample size of the importance weights as a share of the tokens.
    """
    difference = train - behaviour
    weights = difference.exp()
    result = {
        "mismatch/mean_abs": difference.abs().mean().item(),
        "mismatch/max_abs": difference.abs().max().item(),
        "mismatch/ess": (weights.sum().square() / (weights.square().sum() * weights.numel())).item(),
    }
    if train.numel() > 1 and train.std() > 0 and behaviour.std() > 0:
        result["mismatch/correlation"] = torch.corrcoef(torch.stack([train, behaviour]))[0, 1].item()
    return result


class MetricLog:
    """``metrics.jsonl`` and TensorBoard files in one folder. ``step`` is where the run goes on: later rows are removed,
    since those steps will be made again."""

    def __init__(self, folder: Path, step: int) -> None:
        self.path = folder / "metrics.jsonl"
        if self.path.exists():
            _keep_rows(self.path, step)
        self._file = self.path.open("a", encoding="utf-8")
        self._board: Any = None
        if find_spec("tensorboard"):
            from torch.utils.tensorboard import SummaryWriter

            self._board = SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)

    def write(self, kind: str, step: int, metrics: Mapping[str, float]) -> None:
        """One row, flushed. ``kind`` is train or eval."""
        self._file.write(json.dumps({"kind": kind, "step": step, "time": time.time(), **metrics}) + "\n")
        self._file.flush()
        if self._board is not None:
            for name, value in metrics.items():
                self._board.add_scalar(f"{kind}/{name}", value, step)

    def close(self) -> None:
        self._file.close()
        if self._board is not None:
            self._board.close()


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """All rows of a run, in order."""
    return list(_rows(folder / "metrics.jsonl"))


def _rows(path: Path) -> Iterable[dict[str, Any]]:
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            yield json.loads(line)
        except ValueError:  # the last line of a run that was killed
            return


def _keep_rows(path: Path, step: int) -> None:
    kept = [json.dumps(row) + "\n" for row in _rows(path) if row["step"] <= step]
    scratch = path.with_suffix(".writing")
    scratch.write_text("".join(kept), encoding="utf-8")
    os.replace(scratch, path)
