"""Names of the choices that recipes and pure functions share."""

from __future__ import annotations

from typing import Literal

Baseline = Literal["mean", "loo"]
StdKind = Literal["sample", "population", "none", "loo"]
Aggregation = Literal["token_mean", "seq_mean_token_mean", "seq_mean_token_sum_norm"]
KlKind = Literal["k1", "k2", "k3"]
CorrectionKind = Literal["tis", "icepop"]
CorrectionLevel = Literal["token", "sequence", "geometric"]
TruncatedRule = Literal["score", "drop"]
