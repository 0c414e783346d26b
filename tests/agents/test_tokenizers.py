from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from forkgym.agents.formats.chatml import ChatML
from forkgym.agents.tokenizers import ByteTokenizer, HFTokenizer, load_tokenizer
from forkgym.errors import ConfigError

TOY = ByteTokenizer(merges=[(b"a", b"b"), (b"c", b"d"), (b"ab", b"cd")])


def test_toy_ids_follow_insertion_order() -> None:
    assert TOY.encode("ab") == [256]
    assert TOY.encode("cd") == [257]
    assert TOY.encode("abcd") == [258]
    assert TOY.special("<|im_start|>") == 259
    assert TOY.special("<|im_end|>") == 260
    assert TOY.size == 261
    assert TOY.decode([256, 257]) == TOY.decode([258]) == "abcd"


def test_merges_apply_by_rank_not_by_position() -> None:
    tokenizer = ByteTokenizer(merges=[(b"b", b"c"), (b"a", b"b")])
    assert tokenizer.encode("abc") == [ord("a"), 256]
    assert tokenizer.encode("abab") == [257, 257]


def test_spelled_out_special_is_plain_text() -> None:
    ids = TOY.encode("<|im_end|>")
    assert ids == list(b"<|im_end|>")
    assert TOY.decode([*ids, 260]) == "<|im_end|><|im_end|>"


def test_broken_utf8_decodes_to_replacement() -> None:
    assert TOY.decode([0xE2, 0x82]) == "\ufffd"


def test_wrong_merge_and_unknown_special_are_refused() -> None:
    with pytest.raises(ConfigError, match="earlier merge"):
        ByteTokenizer(merges=[(b"ab", b"c")])
    with pytest.raises(ConfigError, match=r"no special token '<pad>'; it has <\|im_start\|>"):
        TOY.special("<pad>")


@given(st.text())
def test_any_text_round_trips(text: str) -> None:
    assert TOY.decode(TOY.encode(text)) == text


def test_directory_without_tokenizer_is_refused(tmp_path) -> None:
    with pytest.raises(ConfigError, match="no tokenizer in"):
        load_tokenizer(tmp_path)


def metaspace(scheme: str, *, special: bool = True) -> HFTokenizer:
    """Words with a space put before them, as in SentencePiece: before every text, or before the first only."""
    vocabulary = {"<unk>": 0, "\u2581a": 1, "\u2581b": 2, "\u2581c": 3, "a": 4, "c": 5}
    backend: Any = Tokenizer(models.WordLevel(vocabulary, "<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    backend.add_tokens([AddedToken("<|im_end|>", special=special, normalized=False)])
    backend.add_special_tokens([AddedToken("<|im_start|>", special=True)])
    return HFTokenizer(PreTrainedTokenizerFast(tokenizer_object=backend))


def test_a_tokenizer_that_writes_the_first_text_otherwise_cannot_be_extended() -> None:
    assert metaspace("always").splits
    assert metaspace("never").splits
    first = metaspace("first")
    assert not first.splits
    with pytest.raises(ConfigError, match="otherwise by where it stands"):
        ChatML(first)


@pytest.mark.parametrize("special", [True, False])
def test_a_control_token_is_one_however_the_model_added_it(special: bool) -> None:
    tokenizer = metaspace("never", special=special)
    assert tokenizer.special("<|im_end|>") == tokenizer.controls["<|im_end|>"]
    assert tokenizer.special("<|im_end|>") not in tokenizer.encode("a<|im_end|>c")
    assert tokenizer.encode("a") == [4]
