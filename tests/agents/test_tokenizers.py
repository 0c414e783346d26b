from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forkgym.agents.tokenizers import ByteTokenizer, load_tokenizer
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
