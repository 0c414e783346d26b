"""Backends by name: each takes a file of a sandbox and says how right and how fast it is (``native.measure``)."""

from __future__ import annotations

BACKENDS = {
    "c": "forkgym.tasks.kernels.native:measure",
    "cpp": "forkgym.tasks.kernels.native:measure",
}
