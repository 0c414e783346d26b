"""What an agent is told: the commit's message and what its tests show, without the fix."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from forkgym.tasks.base import FileChange

Rewriter = Callable[[str], str]
MAX_CHARS = 6000
MAX_SHOWN = 8
# Shorter lines, such as `return None`, can stand in any text and tell nothing.
TELLING = 14
_TRAILER = re.compile(
    r"^(co-authored-by|signed-off-by|reviewed-by|acked-by|change-id|closes|cherry picked from|\(cherry picked|"
    r"pull request|merge (pull request|branch|remote)|---+$|\* *$|this reverts)",
    re.IGNORECASE,
)
_REFERENCE = re.compile(
    r"\s*\(?(?<!\w)(?:gh-|(?:fix(?:es|ed)?|close[sd]?|resolve[sd]?|refs?|see):?\s+)?(?:[\w.-]+/[\w.-]+)?#\d+\)?",
    re.IGNORECASE,
)
_LINK = re.compile(r"https?://\S+")
_FENCE = re.compile(r"^\s*(```|~~~)")


@dataclass(frozen=True)
class Failure:
    """A hidden test, and how it ends before the fix."""

    test: str
    message: str


def write(
    message: str,
    failures: Iterable[Failure],
    before: Mapping[str, FileChange],
    oracle: Mapping[str, FileChange],
    rewrite: Rewriter | None = None,
) -> str | None:
    """The instruction; ``None`` if none can be written that does not tell the fix.

    A text of ``rewrite`` (a model, given the plain instruction) is taken only if it does not tell the fix either.
    """
    secrets = added_lines(before, oracle)
    said = _told(message, secrets)
    shown = symptoms(list(failures), secrets)
    for parts in ((said, shown), (shown,), (said,)):
        text = "\n\n".join(part for part in parts if part)
        if text and not leaks(text, secrets):
            break
    else:
        return None
    if rewrite is not None:
        other = rewrite(text).strip()
        if other and len(other) <= MAX_CHARS and not leaks(other, secrets):
            return other
    return text


def added_lines(before: Mapping[str, FileChange], oracle: Mapping[str, FileChange]) -> set[str]:
    """Lines of the fix, without blanks, that stand nowhere in the repository before it."""
    known = {squeeze(line) for change in before.values() for line in _lines(change)}
    new = {squeeze(line) for change in oracle.values() for line in _lines(change)}
    return {line for line in new - known if len(line) >= TELLING}


def leaks(text: str, secrets: Iterable[str]) -> list[str]:
    """Lines of the fix that the text holds, however it is spaced."""
    squeezed = squeeze(text)
    return sorted(secret for secret in secrets if secret in squeezed)


def squeeze(text: str) -> str:
    """The text without any white space."""
    return "".join(text.split())


def _told(message: str, secrets: set[str]) -> str:
    """The message without trailers, references, links, and any line or block of code that tells the fix."""
    kept: list[str] = []
    block: list[str] = []
    inside = False
    for line in message.replace("\r\n", "\n").split("\n"):
        if _FENCE.match(line):
            inside = not inside
            block.append(line)
            if not inside:
                kept += block if not leaks("\n".join(block), secrets) else []
                block = []
        elif inside:
            block.append(line)
        elif not _TRAILER.match(line.strip()) and not line.startswith(("+", "-  ", "diff --git", "@@", "index ")):
            cleaned = _LINK.sub("", _REFERENCE.sub("", line)).rstrip()
            if (cleaned.strip() or not line.strip()) and not leaks(cleaned, secrets):
                kept.append(cleaned)
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(_without_repeats(kept))).strip()
    return text[: MAX_CHARS // 2].rstrip()


def _without_repeats(lines: list[str]) -> list[str]:
    """A merge and the commit that it brought often say the same."""
    seen: set[str] = set()
    kept: list[str] = []
    for line in lines:
        key = squeeze(line).lower()
        if key in seen and not _FENCE.match(line):
            continue
        seen.update({key} if key else ())
        kept.append(line)
    return kept


def symptoms(failures: list[Failure], secrets: set[str]) -> str:
    """How hidden tests fail, without what tells the fix; empty if nothing can be shown."""
    lines: list[str] = []
    for failure in failures:
        message = _short(failure.message)
        if len(lines) < MAX_SHOWN and not leaks(message, secrets):
            lines.append(f"- {failure.test.rpartition('::')[2] or failure.test}: {message}")
    if not lines:
        return ""
    rest = len(failures) - len(lines)
    more = f"\n- and {rest} more" if rest else ""
    return "Tests that you don't see fail now, and should pass:\n\n" + "\n".join(lines) + more


def _short(message: str) -> str:
    first = [line.strip() for line in message.splitlines() if line.strip()][:3]
    text = re.sub(r"\s*\(line \d+\)", "", " ".join(first))
    return text[:240] + ("…" if len(text) > 240 else "") if text else "does not pass"


def _lines(change: FileChange) -> list[str]:
    return (change.data or b"").decode("utf-8", "replace").splitlines()
