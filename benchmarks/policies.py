"""How fast the built-in engine samples, one episode at a time and sixteen at once, and how exact it is.

python benchmarks/policies.py [TOKENS]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import torch
from harness import Section

from forkgym.agents.base import Policy, SamplingParams, Segment
from forkgym.agents.formats.chatml import ChatML
from forkgym.agents.models import LanguageModel, compute_dtype, load_language_model
from forkgym.agents.policies.hf import HFPolicy
from forkgym.trainers.logprobs import token_logprobs

EPISODES, ALONE, TURNS = 16, 4, 2
SPEEDUP, CORRELATION, DISTANCE = 4.0, 0.999, 1e-3
OUTPUT = "def clamp(x, low, high):\n    if x < low:\n        return low\n    return x\n" * 3


def run(tokens: int = 48) -> Section:
    """Tokens per second of turns of ``tokens`` tokens, then the distance to the trainer's own forward pass."""
    language = load_language_model("smollm2-135m")
    dtype = compute_dtype("auto")
    name = str(dtype).removeprefix("torch.")
    section = Section(f"Policies (SmolLM2-135M, {name})", ["what", "result", "beside it", "target"])
    with _engine(language, dtype) as engine:
        _play(engine, language, 1, 8)  # warm
        alone = _speed(engine, language, ALONE, tokens, 1)
    with _engine(language, dtype) as engine:
        _play(engine, language, 1, 8)
        together = _speed(engine, language, EPISODES, tokens, EPISODES)
    raw, raw_batch = (_transformers(language, dtype, n, tokens) for n in (1, EPISODES))
    ratio = together / alone
    section.rows += [
        ("one episode at a time, tokens/s", f"{alone:.0f}", f"transformers generate: {raw:.0f}", ""),
        (f"{EPISODES} episodes at once, tokens/s", f"{together:.0f}", f"transformers generate: {raw_batch:.0f}", ""),
        ("their ratio", f"{ratio:.1f} ×", f"{raw_batch / raw:.1f} ×", section.check_least(
            "16 episodes beside one, tokens/s", ratio, SPEEDUP, "×")),
    ]  # fmt: skip
    correlation, distance = _exactness(language, tokens)
    section.rows += [
        ("correlation with the trainer, float32", f"{correlation:.6f}", "", section.check_least(
            "correlation of log-probabilities", correlation, CORRELATION, "")),
        ("largest difference from it", f"{distance:.1e}", "", section.check(
            "difference of log-probabilities", distance, DISTANCE, "")),
    ]  # fmt: skip
    section.notes.append(
        f"Episodes of {TURNS} turns of {tokens} tokens, with an observation between them. `transformers generate` "
        "samples as many tokens once, without the turns, and gives no log-probabilities of what it sampled."
    )
    return section


def _engine(language: LanguageModel, dtype: torch.dtype) -> HFPolicy:
    return HFPolicy(language.model, dtype=dtype, slots=EPISODES, context=1024)


def _prompt(chat: ChatML, n: int) -> list[int]:
    return chat.start([{"role": "user", "content": f"Test {n} fails: clamp(15, 0, 10) returns 15. Fix clamp.py."}])


def episode(engine: Policy, chat: ChatML, n: int, tokens: int, temperature: float = 1.0) -> Segment:
    """Some turns of ``tokens`` tokens each, with an observation after each."""
    segment = Segment()
    segment.append_prompt(_prompt(chat, n), 0)
    for turn in range(TURNS):
        [completion] = engine.generate([segment.ids], SamplingParams(tokens, temperature, seed=100 * n + turn))
        segment.append_completion(completion, turn)
        longer = chat.extend(segment.ids, [{"role": "user", "content": OUTPUT}])
        segment.append_prompt(longer[len(segment.ids) :], turn)
    return segment


def _play(engine: HFPolicy, language: LanguageModel, episodes: int, tokens: int, at_once: int = 1) -> list[Segment]:
    chat = ChatML(language.tokenizer)
    with ThreadPoolExecutor(at_once) as pool:
        jobs = [pool.submit(episode, engine, chat, n, tokens) for n in range(episodes)]
        return [job.result() for job in jobs]


def _speed(engine: HFPolicy, language: LanguageModel, episodes: int, tokens: int, at_once: int) -> float:
    start = time.perf_counter()
    segments = _play(engine, language, episodes, tokens, at_once)
    return sum(sum(segment.sampled) for segment in segments) / (time.perf_counter() - start)


def _transformers(language: LanguageModel, dtype: torch.dtype, batch: int, tokens: int) -> float:
    """Tokens per second of the library's own loop; the prompts have one length."""
    model = type(language.model)(language.model.config).eval().to(dtype)
    model.load_state_dict(language.model.state_dict())
    ids = torch.tensor([_prompt(ChatML(language.tokenizer), 1)] * batch)
    total = TURNS * tokens

    def sample(n: int) -> None:
        model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=True, max_new_tokens=n, min_new_tokens=n, pad_token_id=2
        )

    sample(4)  # warm
    start = time.perf_counter()
    sample(total)
    return batch * total / (time.perf_counter() - start)


def _exactness(language: LanguageModel, tokens: int) -> tuple[float, float]:
    """Correlation and largest difference between sampled and recomputed log-probabilities, at two temperatures."""
    sampled, again = list[float](), list[float]()
    chat = ChatML(language.tokenizer)
    for temperature in (1.0, 0.7):
        with _engine(language, torch.float32) as engine, ThreadPoolExecutor(4) as pool:
            jobs = [pool.submit(episode, engine, chat, n, tokens, temperature) for n in range(4)]
            segments = [job.result() for job in jobs]
        sampled += [p for segment in segments for p, own in zip(segment.logprobs, segment.sampled, strict=True) if own]
        again += recompute(language, segments, temperature)
    both = torch.tensor([sampled, again], dtype=torch.float64)
    return float(torch.corrcoef(both)[0, 1]), float((both[0] - both[1]).abs().max())


def recompute(language: LanguageModel, segments: Sequence[Segment], temperature: float) -> list[float]:
    """The trainer's log-probabilities of the sampled tokens, in float32."""
    width = max(len(segment.ids) for segment in segments)
    ids = torch.tensor([segment.ids + [0] * (width - len(segment.ids)) for segment in segments])
    mask = torch.tensor([segment.sampled + [False] * (width - len(segment.ids)) for segment in segments])
    with torch.no_grad():
        return cast("list[float]", token_logprobs(language.model, ids, mask, temperature=temperature)[0].tolist())


if __name__ == "__main__":
    sys.stdout.write(run(*map(int, sys.argv[1:2])).markdown())
