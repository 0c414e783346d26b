"""The token tree of rows that begin alike, against hand-drawn trees and separate forward passes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from forkgym.trainers.logprobs import token_logprobs
from forkgym.trainers.prefix import pack, shared_length


@pytest.fixture(scope="module")
def model() -> Any:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=60, hidden_size=32, intermediate_size=48, **sizes)).eval()


def test_a_tree_drawn_by_hand() -> None:
    #   1 - 2 - 3 - 4
    #        \- 5        and  9
    tree = pack(torch.tensor([[1, 2, 3, 4], [1, 2, 5, 0], [9, 0, 0, 0]]), torch.tensor([4, 3, 1]))
    assert tree.ids.tolist() == [[1, 2, 3, 4, 5, 9]]
    assert tree.positions.tolist() == [[0, 1, 2, 3, 2, 0]]
    assert tree.node.tolist() == [[0, 1, 2, 3], [0, 1, 4, 0], [5, 0, 0, 0]]
    ancestors = [{0}, {0, 1}, {0, 1, 2}, {0, 1, 2, 3}, {0, 1, 4}, {5}]
    read = [set(row.nonzero()[:, 0].tolist()) for row in tree.attends[0, 0]]
    assert read == ancestors


def test_equal_rows_and_a_row_inside_another_add_nothing() -> None:
    tree = pack(torch.tensor([[7, 8, 9], [7, 8, 9], [7, 8, 0]]), torch.tensor([3, 3, 2]))
    assert tree.ids.tolist() == [[7, 8, 9]]
    assert tree.node.tolist() == [[0, 1, 2], [0, 1, 2], [0, 1, 0]]


def test_hidden_states_are_those_of_separate_rows(model: Any) -> None:
    ids = torch.tensor([[1, 2, 3, 4, 5, 6], [1, 2, 3, 9, 9, 0], [1, 2, 3, 4, 7, 7], [8, 1, 2, 0, 0, 0]])
    lengths = torch.tensor([6, 5, 6, 3])
    tree = pack(ids, lengths)
    assert tree.ids.shape == (1, 13)
    packed = model.model(input_ids=tree.ids, position_ids=tree.positions, attention_mask=tree.attends)
    for row, length in enumerate(lengths.tolist()):
        alone = model.model(input_ids=ids[row : row + 1, :length]).last_hidden_state[0]
        assert torch.allclose(packed.last_hidden_state[0][tree.node[row, :length]], alone, atol=1e-5)


def test_a_token_that_two_rows_share_gets_the_gradient_of_both(model: Any) -> None:
    ids = torch.tensor([[1, 2, 3, 4], [1, 2, 3, 5]])
    mask = torch.tensor([[False, False, True, True]] * 2)
    weights = torch.tensor([1.0, 2.0, 5.0, 7.0])
    gradients: list[list[torch.Tensor]] = []
    for rows in ([[0, 1]], [[0], [1]]):
        model.zero_grad()
        for part in rows:
            logp, _ = token_logprobs(model, ids[part], mask[part])
            (logp * weights.view(2, 2)[part].flatten()).sum().backward()
        gradients.append([p.grad.clone() for p in model.parameters()])
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(*gradients, strict=True))


@pytest.mark.parametrize(
    ("a", "b", "length"), [([], [1], 0), ([1, 2], [1, 2], 2), ([1, 2, 3], [1, 2], 2), ([3], [4], 0)]
)
def test_shared_length(a: list[int], b: list[int], length: int) -> None:
    assert shared_length(a, b) == length
