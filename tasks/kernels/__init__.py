"""Kernels to speed up: what a task says of one, and how it is built, checked and timed. See ``docs/kernels.md``."""
