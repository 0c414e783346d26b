"""Names of the choices that recipes and pure functions share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Baseline = Literal["mean", "loo", "length", "zero"]
StdKind = Literal["sample", "population", "none", "loo", "mean"]
Aggregation = Literal["token_mean", "seq_mean_token_mean", "seq_mean_token_sum_norm"]
PolicyLoss = Literal[
    "ppo",
    "gspo",
    "gmpo",
    "cispo",
    "sapo",
    "topr",
    "dro",
    "dppo",
    "dis",
    "vespo",
    "opsm",
    "m2po",
    "clip_cov",
    "kl_cov",
    "reinforce",
]
KlKind = Literal["k1", "k2", "k3"]
CorrectionKind = Literal["tis", "icepop"]
CorrectionLevel = Literal["token", "sequence", "geometric"]
TruncatedRule = Literal["score", "drop"]
PrivilegedInput = Literal["fraction", "score", "resolved", "failed", "files_changed", "gold_distance"]
"""What a critic may read of ``forkgym.envs.privileged.describe``: all of it describes the state before the turn."""

LOSS_OPTIONS: Mapping[str, Mapping[str, float | None]] = {
    "ppo": {"clip_low": 0.2, "clip_high": 0.2, "dual_clip": None},
    "gspo": {"clip_low": 3e-4, "clip_high": 4e-4},
    "gmpo": {"clip_low": 0.4, "clip_high": 0.4},
    "cispo": {"clip_low": 1.0, "clip_high": 4.0},
    "sapo": {"tau_positive": 1.0, "tau_negative": 1.05},
    "topr": {},
    "dro": {"tau": 0.1},
    "dppo": {"delta": 0.2},
    "dis": {"clip_low": 0.8, "clip_high": 3.0},
    "vespo": {"k_positive": 2.0, "k_negative": 3.0, "tau_positive": 3.0, "tau_negative": 2.0},
    "opsm": {"clip_low": 0.2, "clip_high": 0.2, "delta": 0.1},
    "m2po": {"tau": 0.04},
    "clip_cov": {"clip_low": 0.2, "clip_high": 0.2, "cov_share": 2e-4},
    "kl_cov": {"cov_share": 2e-3, "cov_kl": 1.0},
    "reinforce": {},
}
"""The options of each policy loss and what they are if left out; no other option has an effect on it."""
PER_EPISODE_LOSSES = ("gspo", "gmpo", "vespo", "opsm")
"""Policy losses that look at an episode's ratio as a whole; the others know single tokens."""
EPISODE_RATIO_LOSSES = ("gspo", "gmpo")
"""Those of them whose gradient is that of one ratio per episode, which fixes how episodes are weighted."""
CHOOSING_LOSSES = ("m2po", "clip_cov", "kl_cov")
"""Policy losses that treat some tokens of the update differently, chosen among all of them at once."""
