"""A small template engine."""

from stencil.environment import Environment
from stencil.errors import TemplateError
from stencil.markup import Safe

__all__ = ["Environment", "Safe", "TemplateError"]
