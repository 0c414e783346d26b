"""Models by name or folder, and which weights are trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from forkgym.agents.models import compute_dtype, refuse_rescaled_logits
from forkgym.errors import ConfigError
from forkgym.trainers.models import choose_trained, load_model, swapped_in, trained_weights
from forkgym.trainers.sections import ModelSection


def tiny(**options: Any) -> Any:
    return load_model(ModelSection(name="tiny-random", **options), seed=0).model


def test_the_seed_decides_the_weights_and_nothing_else() -> None:
    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    first = load_model(ModelSection(name="tiny-random"), seed=4).model
    assert torch.equal(torch.rand(1), expected)
    again, other = (load_model(ModelSection(name="tiny-random"), seed=seed).model for seed in (4, 5))
    key = "model.embed_tokens.weight"
    assert torch.equal(first.state_dict()[key], again.state_dict()[key])
    assert not torch.equal(first.state_dict()[key], other.state_dict()[key])


def test_top_layers_only() -> None:
    model = tiny(train_layers=1)
    names = set(trained_weights(model))
    assert all(name.startswith("model.layers.1.") or name == "model.norm.weight" for name in names)
    assert len(names) == 10
    with pytest.raises(ConfigError, match="train_layers is 3, but the model has 2"):
        choose_trained(model, 3)


def test_a_tied_head_is_listed_under_both_names() -> None:
    weights = trained_weights(tiny())
    assert weights["lm_head.weight"].data_ptr() == weights["model.embed_tokens.weight"].data_ptr()
    assert set(weights) == set(tiny().state_dict())


def test_other_weights_can_be_swapped_in_for_a_while() -> None:
    model = tiny()
    ids = torch.tensor([[1, 2, 3]])
    own = model(input_ids=ids).logits.detach()
    zeros = {name: torch.zeros_like(p) for name, p in model.named_parameters() if name == "model.norm.weight"}
    with swapped_in(model, zeros):
        assert model(input_ids=ids).logits.abs().max().item() == 0.0
    assert torch.equal(model(input_ids=ids).logits, own)


def test_a_folder_of_transformers_is_loaded(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"unknown model .*did you mean 'smollm2-135m'"):
        load_model(ModelSection(name="smollm2-135"))
    tiny().save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="no tokenizer in"):
        load_model(ModelSection(name=str(tmp_path)))


def test_rescaled_logits_are_refused() -> None:
    config = LlamaConfig(vocab_size=8, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1)
    model = LlamaForCausalLM(config)
    refuse_rescaled_logits(model)
    model.config.final_logit_softcapping = 30.0
    with pytest.raises(ConfigError, match="final_logit_softcapping"):
        refuse_rescaled_logits(model)


def test_what_products_are_computed_in() -> None:
    assert compute_dtype("float32") == torch.float32
    assert compute_dtype("bfloat16") == torch.bfloat16
    assert compute_dtype(ModelSection().dtype) in (torch.float32, torch.bfloat16)
