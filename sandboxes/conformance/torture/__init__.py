"""Attacks that a sandbox must hold: what code written by a model under training does by accident or on purpose.

Each case makes its own sandbox, attacks it, states the outcome that is due, and then proves that the sandbox still
works. ``forkgym.sandboxes.conformance.check(backend, suite="torture")`` runs them.
"""

from __future__ import annotations

from forkgym.sandboxes.conformance.torture import channels, escapes, files, kernel, processes, resources

CASES = (
    *processes.CASES,
    *resources.CASES,
    *files.CASES,
    *channels.CASES,
    *escapes.CASES,
    *kernel.CASES,
)
