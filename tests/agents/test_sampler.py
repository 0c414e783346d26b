"""Drawing from a distribution, and cutting it, with numbers worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from forkgym.agents.base import SamplingParams
from forkgym.agents.policies.checks import StopTexts
from forkgym.agents.policies.sampler import sample, shape
from forkgym.agents.tokenizers import ByteTokenizer, HFTokenizer

EVENLY = [(n + 0.5) / 1000 for n in range(1000)]


def test_draws_follow_the_distribution() -> None:
    probabilities = torch.tensor([0.1, 0.0, 0.2, 0.7])
    ids, logprobs = sample(probabilities.log().repeat(1000, 1), EVENLY)
    assert [ids.count(token) for token in range(4)] == [100, 0, 200, 700]
    assert logprobs == pytest.approx([probabilities[token].log().item() for token in ids], abs=1e-6)


def test_draws_over_a_large_vocabulary_match_a_plain_search() -> None:
    torch.manual_seed(2)
    logits = torch.randn(40, 1000) * 3
    points = torch.rand(40, dtype=torch.float64).tolist()
    cumulative = torch.softmax(logits.double(), -1).cumsum(-1)
    expected = [int((cumulative[row] <= point).sum()) for row, point in enumerate(points)]
    greedy = logits.argmax(-1).tolist()
    assert sample(logits.clone(), points)[0] == expected
    assert sample(logits.clone(), [None] * 40)[0] == greedy


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [0.15, 0.5, 0.05, 0.3]),
        ({"top_k": 2}, [0, 0.625, 0, 0.375]),
        ({"top_k": 9}, [0.15, 0.5, 0.05, 0.3]),
        ({"top_p": 0.45}, [0, 1, 0, 0]),
        ({"top_p": 0.75}, [0, 0.625, 0, 0.375]),
        ({"top_p": 0.85}, [3 / 19, 10 / 19, 0, 6 / 19]),
        # Of the three likeliest, 0.5 / 0.95 holds less than 0.55, so two are kept; of all four, 0.5 would be too.
        ({"top_k": 3, "top_p": 0.52}, [0, 1, 0, 0]),
        ({"top_k": 3, "top_p": 0.55}, [0, 0.625, 0, 0.375]),
        # At temperature 1/2 the weights are 0.0225, 0.25, 0.0025, 0.09: the first holds 0.68.
        ({"top_p": 0.7, "temperature": 0.5}, [0, 25 / 34, 0, 9 / 34]),
        ({"top_k": 1, "temperature": 0.0}, [0.15, 0.5, 0.05, 0.3]),
    ],
)
def test_a_cut_keeps_the_likeliest_and_counts_their_mass_as_one(
    options: dict[str, float], expected: list[float]
) -> None:
    logits = torch.tensor([[0.15, 0.5, 0.05, 0.3]]).log() + 7
    shape(logits, [SamplingParams(**options)])  # type: ignore[arg-type]
    assert torch.softmax(logits[0], -1).tolist() == pytest.approx(expected, abs=1e-6)


def test_a_cut_draw_has_the_logprob_of_the_cut_distribution() -> None:
    logits = torch.tensor([0.15, 0.5, 0.05, 0.3]).log().repeat(1000, 1)
    shape(logits, [SamplingParams(top_k=2)] * 1000)
    ids, logprobs = sample(logits, EVENLY)
    assert [ids.count(token) for token in range(4)] == [0, 625, 0, 375]
    assert {round(math.exp(logprob), 5) for logprob in logprobs} == {0.625, 0.375}


def test_rows_are_cut_each_by_its_own_options() -> None:
    logits = torch.zeros(3, 1000)
    shape(logits, [SamplingParams(top_p=0.4995), SamplingParams(), SamplingParams(top_k=7)])
    assert [int(row.isfinite().sum()) for row in logits] == [500, 1000, 7]


def test_stop_texts_are_found_across_tokens_and_inside_characters() -> None:
    tokenizer = ByteTokenizer([(b"a", b"b")])
    ids = tokenizer.encode("xxabyé!")
    assert len(ids) == 7  # ab is one token, é is two
    stops = StopTexts(("by", "é"), tokenizer)
    assert [n for n in range(1, 8) if stops.end(ids[:n])] == [4, 5, 6, 7]
    assert [n for n in range(1, 8) if StopTexts(("é",), tokenizer).end(ids[:n])] == [6, 7]


@pytest.mark.parametrize("stop", ["```\n", "\nObservation:", "é</s>", " done"])
def test_stop_texts_end_where_the_whole_text_would(smollm2: HFTokenizer, stop: str) -> None:
    ids = smollm2.encode(f"Let me look — 文字 {'word ' * 40}```bash\nls\n``` then{stop} and more")
    expected = next(n for n in range(1, len(ids) + 1) if stop in smollm2.decode(ids[:n]))
    stops = StopTexts((stop,), smollm2)
    assert next(n for n in range(1, len(ids) + 1) if stops.end(ids[:n])) == expected
