"""Errors of the trainer room.

    TrainerError (RuntimeError)
    ├── NonFiniteError (ArithmeticError)   a trainable log-probability or loss is NaN or infinite: names the episode
    ├── CollapseError                      the policy shows signs of collapse, and the recipe asks to stop then
    ├── CheckpointError                    a checkpoint is absent, damaged, or belongs to another recipe
    └── InterruptedTraining                Ctrl-C: sandboxes are closed, the last checkpoint is good, exit code 130

A wrong recipe is a ``forkgym.errors.ConfigError``.
"""

from __future__ import annotations

from forkgym.errors import ForkGymError


class TrainerError(ForkGymError, RuntimeError):
    """Base of the room's errors."""


class NonFiniteError(TrainerError, ArithmeticError):
    """A number that would be trained on is NaN or infinite."""


class CollapseError(TrainerError):
    """Signs of collapse lasted; the last step is saved."""


class CheckpointError(TrainerError):
    """A checkpoint cannot be used."""


class InterruptedTraining(TrainerError):
    """The run was stopped by the user; ``exit_code`` is what a command should return."""

    exit_code = 130
