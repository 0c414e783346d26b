"""Keep what a function returned."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from typing import Any

from larder.cache import Cache

_KEYWORDS = object()  # keeps f(1, ("a", 2)) and f(1, a=2) apart


def memoize(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """A decorator; ``options`` are those of ``Cache``."""

    def decorate(function: Callable[..., Any]) -> Any:
        cache = Cache(**options)

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return cache.load(_key(args, kwargs), lambda: function(*args, **kwargs))

        def forget(*args: Any, **kwargs: Any) -> bool:
            return cache.delete(_key(args, kwargs))

        wrapper.cache = cache  # type: ignore[attr-defined]
        wrapper.forget = forget  # type: ignore[attr-defined]
        return wrapper

    return decorate


def _key(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Hashable:
    """Equal for equal calls. Types count, because 1 == 1.0 == True."""
    key: list[Any] = [(type(value), value) for value in args]
    if kwargs:
        key.append(_KEYWORDS)
        key += [(name, type(value), value) for name, value in sorted(kwargs.items())]
    return tuple(key)
