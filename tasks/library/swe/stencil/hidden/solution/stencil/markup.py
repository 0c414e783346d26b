"""Text that is HTML already, and text that is not."""

from __future__ import annotations

from typing import Any

_SIGNS = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&#34;", "'": "&#39;"}


class Safe(str):
    """HTML that needs no escaping. The methods of ``str`` return plain ``str``: their result is not known to be safe."""


class Undefined:
    """What a template asked for and nobody gave. Prints nothing, is false and empty."""

    def __bool__(self) -> bool:
        return False

    def __iter__(self):
        return iter(())

    def __len__(self) -> int:
        return 0

    def __str__(self) -> str:
        return ""


UNDEFINED = Undefined()


def escape(value: Any) -> Safe:
    """HTML that shows ``value``. ``Safe`` text stays as it is."""
    if isinstance(value, Safe):
        return value
    return Safe("".join(_SIGNS.get(letter, letter) for letter in str(value)))
