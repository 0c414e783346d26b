"""Which models are computed exactly: those whose every layer attends as the mask says that we give it."""

from __future__ import annotations

from typing import Any

from forkgym.errors import ConfigError

_ATTENTION = "sdpa"
_LAYERS = {"full_attention", "sliding_attention"}


def refuse_unsupported(model: Any, tokens: int) -> None:
    """Raise ``ConfigError`` if streams of ``tokens`` tokens would not be what ``model`` itself computes.

    The engine and the trainers give every layer a boolean mask of their own. Eager attention would add it to its
    scores, a recurrent layer would not look at it, and a layer with a window would look beyond the window.
    """
    config, name = model.config, type(model).__name__
    how = getattr(config, "_attn_implementation", None)
    if how != _ATTENTION:
        raise ConfigError(f"{name} computes attention by {how!r}; load it with attn_implementation={_ATTENTION!r}")
    kinds: set[str] = set(getattr(config, "layer_types", None) or ())
    if other := sorted(kinds - _LAYERS):
        raise ConfigError(f"{name} has layers of kind {other[0]!r}; only full attention is computed exactly")
    window = getattr(config, "sliding_window", None)
    if window and tokens > window and (not kinds or "sliding_attention" in kinds):
        raise ConfigError(f"{name} attends to the last {window} tokens only; use a context of at most {window}")
