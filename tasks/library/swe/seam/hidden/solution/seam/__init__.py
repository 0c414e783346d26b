"""Compares texts and applies patches in the unified format."""

from seam.patching import apply
from seam.texts import Conflict, Patch, PatchError
from seam.unified import diff, parse

__all__ = ["Conflict", "Patch", "PatchError", "apply", "diff", "parse"]
