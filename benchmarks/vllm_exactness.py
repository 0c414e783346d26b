"""How far vLLM's log-probabilities are from the trainer's, where vLLM is installed (``docs/policies.md``).

PYTHONPATH=src python benchmarks/vllm_exactness.py [TOKENS]
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import torch
from harness import Section
from policies import episode, recompute

from forkgym.agents.formats.chatml import ChatML
from forkgym.agents.models import load_language_model, model_folder
from forkgym.agents.policies.vllm import VLLMPolicy

MODEL, EPISODES, CORRELATION = "smollm2-135m", 8, 0.99


def run(tokens: int = 32) -> Section:
    """Episodes at once, two turns each over vLLM's prefix cache, in both types."""
    columns = ["vLLM in", "tokens", "correlation", "mean difference", "largest", "target"]
    section = Section(f"vLLM beside the trainer in float32 ({MODEL})", columns)
    language = load_language_model(MODEL)
    chat = ChatML(language.tokenizer)
    for dtype in ("float32", "bfloat16"):
        engine = VLLMPolicy(model_folder(MODEL), dtype=dtype, slots=EPISODES, context=1024, eager=True)
        with engine, ThreadPoolExecutor(EPISODES) as pool:
            jobs = [pool.submit(episode, engine, chat, n, tokens) for n in range(EPISODES)]
            segments = [job.result() for job in jobs]
        sampled = [p for s in segments for p, own in zip(s.logprobs, s.sampled, strict=True) if own]
        both = torch.tensor([sampled, recompute(language, segments, 1.0)], dtype=torch.float64)
        correlation, apart = float(torch.corrcoef(both)[0, 1]), (both[0] - both[1]).abs()
        met = section.check_least(f"vLLM in {dtype}", correlation, CORRELATION, "")
        section.rows.append(
            (dtype, str(len(sampled)), f"{correlation:.6f}", f"{apart.mean():.1e}", f"{apart.max():.1e}", met)
        )
    return section


if __name__ == "__main__":
    sys.stdout.write(run(*map(int, sys.argv[1:2])).markdown())
