"""A cache for one process, safe to use from any thread."""

from larder.cache import Cache
from larder.memo import memoize

__all__ = ["Cache", "memoize"]
