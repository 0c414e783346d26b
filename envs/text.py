"""From the bytes a command wrote to the text an agent reads."""

from __future__ import annotations

NUL_SYMBOL = "\N{SYMBOL FOR NULL}"


def decode(data: bytes) -> str:
    """Valid text for any bytes: UTF-8, each bad byte as U+FFFD, NUL as its visible symbol.

    Other control characters (tabs, carriage returns, escape sequences) are kept: they are valid text and valid JSON.
    The raw bytes stay available from the sandbox.
    """
    return data.decode("utf-8", errors="replace").replace("\0", NUL_SYMBOL)


def cap(text: str, limit: int) -> str:
    """At most ``limit`` characters of ``text``: its head and tail, with a note between that counts what was cut."""
    if len(text) <= limit:
        return text
    note = _note(len(text) - limit)
    while True:  # the note's own length decides how much is cut; a longer count can only lengthen it
        cut = len(text) - (limit - len(note))
        longer = _note(cut)
        if len(longer) == len(note):
            break
        note = longer
    if len(longer) >= limit:
        return text[:limit]
    keep = limit - len(longer)
    head = (keep + 1) // 2
    return text[:head] + longer + text[len(text) - (keep - head) :]


def valid(text: str) -> str:
    """``text`` with each lone surrogate, which no UTF-8 can carry, written out as an escape."""
    return text.encode("utf-8", "backslashreplace").decode()


def written(value: object) -> str:
    """``repr`` of any value as text that can be printed and stored; what has none is named by its type."""
    try:
        return valid(repr(value))
    except Exception as error:  # nested too deep, a number too long, a repr that raises
        return f"<{type(value).__name__}: {type(error).__name__}>"


def _note(count: int) -> str:
    return f"\n[... {count} characters cut ...]\n"
