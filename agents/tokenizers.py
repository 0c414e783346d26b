"""Text to token ids and back.

``encode`` never yields a special token, whatever the text says: text that spells ``<|im_end|>`` cannot end a turn.
Special tokens are asked for by name and placed by a chat format.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Protocol, cast

from forkgym.errors import ConfigError, MissingExtraError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_CONTROL = re.compile(r"<[|｜][^<>]*[|｜]>|<\w+_of_\w+>|</?(?:think|tools?|tool_\w+)>|\[/?[A-Z_]+\]")
CHATML_SPECIALS = ("<|im_start|>", "<|im_end|>")


class Tokenizer(Protocol):
    """Safe to call from many threads."""

    @property
    def size(self) -> int:
        """All ids lie in ``range(size)``."""
        ...

    def encode(self, text: str) -> list[int]:
        """Ids of plain text; spelled-out special tokens are plain text too."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, special tokens spelled out; broken UTF-8 becomes U+FFFD."""
        ...

    def special(self, name: str) -> int:
        """The id of a special token. Raises ``ConfigError`` if there is none of this name."""
        ...


class ByteTokenizer:
    """Ids 0-255 are bytes, then one id per merge, then the special tokens. Needs no files: for tests and tiny models.

    ``merges`` are pairs of byte strings, applied in order of rank as in byte-pair encoding.
    """

    def __init__(
        self,
        merges: Sequence[tuple[bytes, bytes]] = (),
        specials: Sequence[str] = CHATML_SPECIALS,
    ) -> None:
        self._pieces = [bytes([i]) for i in range(256)] + [left + right for left, right in merges]
        self._ranks: dict[tuple[int, int], int] = {}
        for rank, (left, right) in enumerate(merges):
            self._ranks[self._piece(left, 256 + rank), self._piece(right, 256 + rank)] = 256 + rank
        self._specials = {name: len(self._pieces) + i for i, name in enumerate(specials)}
        self._names = tuple(specials)

    def _piece(self, data: bytes, below: int) -> int:
        known = self._pieces[:below]
        if data not in known:
            raise ConfigError(f"merge of {data!r}: it must be a byte or an earlier merge")
        return known.index(data)

    @property
    def size(self) -> int:
        return len(self._pieces) + len(self._names)

    def encode(self, text: str) -> list[int]:
        ids = list(text.encode("utf-8"))
        while True:
            found = [rank for pair in itertools.pairwise(ids) if (rank := self._ranks.get(pair)) is not None]
            if not found:
                return ids
            ids = self._merge(ids, min(found))

    def _merge(self, ids: list[int], rank: int) -> list[int]:
        out: list[int] = []
        i = 0
        while i < len(ids):
            if i + 1 < len(ids) and self._ranks.get((ids[i], ids[i + 1])) == rank:
                out.append(rank)
                i += 2
            else:
                out.append(ids[i])
                i += 1
        return out

    def decode(self, ids: Sequence[int]) -> str:
        first = len(self._pieces)
        data = b"".join(self._pieces[i] if i < first else self._names[i - first].encode() for i in ids)
        return data.decode("utf-8", errors="replace")

    def special(self, name: str) -> int:
        if name not in self._specials:
            raise ConfigError(f"the tokenizer has no special token {name!r}; it has {', '.join(self._names) or 'none'}")
        return self._specials[name]


class HFTokenizer:
    """A fast tokenizer of ``transformers``, made thread-safe.

    ``controls`` are the ids of its special tokens, ``strips_left`` and ``strips_right`` those that swallow the white
    space beside them. ``splits`` is False if a text is encoded otherwise by where it stands, as with a space put before
    the first word only.

    ``transformers`` switches the shared backend to and fro for ``split_special_tokens``, which is a race between
    threads; this class keeps its own copy of the backend with the switch set once. In this copy the control tokens
    that a model adds as ordinary ones, such as ``<tool_call>``, are special too: no text becomes them.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        from tokenizers import Tokenizer as Backend

        backend: Any = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise ConfigError(f"{type(tokenizer).__name__} is not a fast tokenizer; load it with use_fast=True")
        self.hf = tokenizer
        self._backend: Any = Backend.from_str(_guarded(backend.to_str()))
        self._backend.no_truncation()
        self._backend.no_padding()
        added: list[Any] = list(self._backend.get_added_tokens_decoder().items())
        self.controls: dict[str, int] = {token.content: int(id) for id, token in added if token.special}
        self.strips_left = {token.content for _, token in added if token.special and token.lstrip}
        self.strips_right = {token.content for _, token in added if token.special and token.rstrip}
        self.splits = self._splits()
        self._backend.encode_special_tokens = True

    @property
    def size(self) -> int:
        return int(self._backend.get_vocab_size(with_added_tokens=True))

    def encode(self, text: str) -> list[int]:
        return list(self._backend.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._backend.decode(list(ids), skip_special_tokens=False))

    def _splits(self) -> bool:
        """True if the texts between special tokens are encoded as each would be on its own."""
        plain = [name for name in self.controls if name not in self.strips_left | self.strips_right]
        if not plain:
            return True
        mark, texts = plain[0], ("a b", " c")
        pieces = [id for text in texts for id in (self.controls[mark], *self.encode(text))]
        return self.encode("".join(f"{mark}{text}" for text in texts)) == pieces

    def special(self, name: str) -> int:
        if name not in self.controls:
            known = ", ".join(self.controls) or "none"
            raise ConfigError(f"the tokenizer has no special token {name!r}; it has {known}")
        return self.controls[name]


def require_pieces(tokenizer: Tokenizer) -> None:
    """Raises ``ConfigError`` if pieces of a conversation can't be encoded on their own."""
    if isinstance(tokenizer, HFTokenizer) and not tokenizer.splits:
        raise ConfigError(
            "the tokenizer encodes a text otherwise by where it stands (as with prepend_scheme 'first'), so a "
            "conversation can't be extended exactly; convert it to prepend_scheme 'never'"
        )


def _guarded(description: str) -> str:
    """A tokenizer's JSON in which every control token is special."""
    spec: dict[str, Any] = json.loads(description)
    found = [token for token in spec.get("added_tokens") or () if _CONTROL.fullmatch(token["content"])]
    if all(token["special"] for token in found):
        return description
    for token in found:
        token["special"] = True
    return json.dumps(spec)


def load_tokenizer(directory: str | PathLike[str], gguf_file: str | None = None) -> HFTokenizer:
    """The tokenizer in a local model directory, or inside a GGUF file of that directory; nothing is downloaded."""
    try:
        from transformers import AutoTokenizer
    except ModuleNotFoundError as error:
        raise MissingExtraError("loading a tokenizer needs transformers: pip install 'forkgym[train]'") from error
    load = cast(Any, AutoTokenizer).from_pretrained
    options = {} if gguf_file is None else {"gguf_file": gguf_file}
    try:
        return HFTokenizer(load(str(directory), local_files_only=True, **options))
    except (OSError, ValueError) as error:
        raise ConfigError(f"no tokenizer in {str(directory)!r}: {error}") from error
