"""The sections of a recipe that define advantages and the loss. This module imports no torch."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from forkgym.trainers.kinds import (
    CHOOSING_LOSSES,
    EPISODE_RATIO_LOSSES,
    LOSS_OPTIONS,
    PER_EPISODE_LOSSES,
    Aggregation,
    Baseline,
    CorrectionKind,
    CorrectionLevel,
    PolicyLoss,
    StdKind,
    TruncatedRule,
)
from forkgym.trainers.sections import Count, NotNegative, Positive, Section

ESTIMATORS: dict[str, tuple[Baseline, StdKind]] = {
    "grpo": ("mean", "sample"),
    "dapo": ("mean", "sample"),
    "dr_grpo": ("mean", "none"),
    "rloo": ("loo", "none"),
    "maxrl": ("mean", "mean"),
    "opo": ("length", "none"),
    "reinforce": ("zero", "none"),
    "reinforce_pp": ("zero", "none"),
    "reinforce_pp_baseline": ("mean", "none"),
    "gdpo": ("mean", "sample"),
    "pass_at_k": ("loo", "none"),
    "gpg": ("mean", "none"),
    "gigpo": ("mean", "none"),
    "leap": ("mean", "none"),
    "river": ("mean", "none"),
}
"""Baseline and divisor of each advantage estimator."""
WHITENED = ("reinforce_pp", "reinforce_pp_baseline", "gdpo")
"""Estimators whose advantages are whitened over all trained tokens of the step."""


class AdvantageSection(Section):
    """How rewards become advantages."""

    estimator: Literal[
        "grpo",
        "dr_grpo",
        "rloo",
        "dapo",
        "maxrl",
        "opo",
        "reinforce",
        "reinforce_pp",
        "reinforce_pp_baseline",
        "gdpo",
        "pass_at_k",
        "gpg",
        "gigpo",
        "leap",
        "river",
    ] = "grpo"
    std: StdKind | None = None
    """Divisor of grpo, dapo and gigpo; ``null`` takes the estimator's own (grpo and dapo: sample, gigpo: none)."""
    eps: NotNegative = 1e-6
    tolerance: NotNegative = 1e-4
    """Groups whose rewards lie within this range carry no signal and get exactly 0."""
    truncated: TruncatedRule = "score"
    """Episodes cut off by a limit count with what they scored, or are left out of loss and baseline (``drop``)."""
    rounds: Count | None = None
    """dapo only: how often groups without signal are replaced by new ones within a step (default 3)."""
    gamma: Annotated[float, Field(gt=0, le=1)] | None = None
    """gigpo only: discount from one turn to the next (default 0.95)."""
    step_weight: NotNegative | None = None
    """gigpo only: weight of a turn's advantage beside its episode's (default 1)."""
    k: Annotated[int, Field(ge=2)] | None = None
    """pass_at_k only: the size of the sets whose best member counts, at most ``rollout.group_size``; needed there."""
    bound: Annotated[float, Field(ge=0, lt=1)] | None = None
    """river only: the most that a valid episode below the best of its group may count, which counts 1 (default 0.5)."""

    @property
    def baseline(self) -> Baseline:
        return "loo" if self.std == "loo" else ESTIMATORS[self.estimator][0]

    @property
    def std_kind(self) -> StdKind:
        return self.std or ESTIMATORS[self.estimator][1]

    @property
    def whitened(self) -> bool:
        """True if advantages are whitened over the trained tokens of the step."""
        return self.estimator in WHITENED

    @property
    def discount(self) -> float:
        """From one turn to the next, default filled in."""
        return 0.95 if self.gamma is None else self.gamma

    @property
    def turn_weight(self) -> float:
        """Weight of a turn's advantage, default filled in."""
        return 1.0 if self.step_weight is None else self.step_weight

    @property
    def credit(self) -> float:
        """Bound on the credit of valid episodes below the best, default filled in."""
        return 0.5 if self.bound is None else self.bound

    @property
    def max_rounds(self) -> int:
        """Rounds of collection in one step."""
        return (self.rounds or 3) if self.estimator == "dapo" else 1

    @model_validator(mode="after")
    def _check(self) -> AdvantageSection:
        if self.estimator in ("dr_grpo", "rloo") and self.std not in (None, "none"):
            raise ValueError(f"{self.estimator} does not divide by a deviation; std must be none, not {self.std}")
        if self.estimator not in ("grpo", "dapo", "gigpo", "dr_grpo", "rloo") and self.std is not None:
            raise ValueError(f"std is an option of grpo, dapo and gigpo, not of {self.estimator}; remove it")
        if self.std == "mean":
            raise ValueError("std: mean is what the estimator maxrl does; write estimator: maxrl")
        if self.std_kind == "none" and "eps" in self.model_fields_set:
            raise ValueError("eps has no effect without a deviation to divide by; remove it")
        if self.rounds is not None and self.estimator != "dapo":
            raise ValueError("rounds applies to the estimator dapo only; remove it")
        for name in ("gamma", "step_weight"):
            if getattr(self, name) is not None and self.estimator != "gigpo":
                raise ValueError(f"{name} applies to the estimator gigpo only; remove it")
        if self.bound is not None and self.estimator != "river":
            raise ValueError("bound applies to the estimator river only; remove it")
        if (self.estimator == "pass_at_k") != (self.k is not None):
            raise ValueError("k is needed by the estimator pass_at_k and by nothing else")
        return self


class OverlongSection(Section):
    """A growing penalty on episodes with many sampled tokens, taken from the reward before advantages (DAPO)."""

    limit: Count | None = None
    """Sampled tokens of an episode at which the penalty is whole; ``null``: there is none."""
    margin: Count | None = None
    """It grows from 0 over so many tokens before the limit (default: half the limit)."""
    penalty: Positive = 1.0

    @property
    def width(self) -> int:
        """The margin, default filled in; 0 without a limit."""
        return self.margin or max(1, (self.limit or 0) // 2)

    @model_validator(mode="after")
    def _check(self) -> OverlongSection:
        if self.limit is None and self.model_fields_set - {"limit"}:
            raise ValueError("overlong.limit is not given, so margin and penalty have no effect; remove them")
        if self.limit is not None and self.width > self.limit:
            raise ValueError(f"overlong.margin {self.margin} is above overlong.limit {self.limit}")
        return self


class GaeSection(Section):
    """Advantages from values: generalised advantage estimation over trained tokens, which skips observations."""

    level: Literal["token", "turn"] = "token"
    """What an action is: each sampled token, or a whole turn with one value and one advantage."""
    gamma: Annotated[float, Field(gt=0, le=1)] = 1.0
    lam: Annotated[float, Field(ge=0, le=1)] | None = None
    """Default 0.95."""
    alpha: Positive | None = None
    """Instead of ``lam``: 1 - 1 / max(alpha * L, 1) for an episode of L actions."""
    critic_lam: Annotated[float, Field(ge=0, le=1)] = 1.0
    """For the returns that the critic learns; at 1 and without a cut-off they do not depend on the critic."""
    rewards: Literal["final", "turns"] = "final"
    """The episode's reward at its last token, or each turn's (``env.options.reward_mode``) at the turn's last."""
    truncated: Literal["score", "drop", "bootstrap"] = "score"
    """Episodes cut off by a limit: as others, left out, or continued by the critic's value of where they stopped."""
    whiten: bool = True
    """Advantages get mean 0 and deviation 1 over the trained tokens of the step."""

    @model_validator(mode="after")
    def _check(self) -> GaeSection:
        if self.lam is not None and self.alpha is not None:
            raise ValueError("give gae.lam or gae.alpha, not both")
        return self


class KlSection(Section):
    """A penalty on the distance from the starting weights, added to the loss."""

    coefficient: NotNegative = 0.0
    kind: Literal["k2", "k3"] = "k3"
    """k1 is refused: as a loss its expected gradient is zero."""

    @model_validator(mode="after")
    def _check(self) -> KlSection:
        if self.coefficient == 0 and "kind" in self.model_fields_set:
            raise ValueError("kl.coefficient is 0, so kind has no effect; remove it")
        return self


class CorrectionSection(Section):
    """Importance weights for the difference between the sampler's and the trainer's probabilities."""

    kind: CorrectionKind | Literal["none"] = "none"
    level: CorrectionLevel = "token"
    low: NotNegative = 0.5
    high: Positive = 2.0

    @model_validator(mode="after")
    def _check(self) -> CorrectionSection:
        if self.kind == "none" and self.model_fields_set - {"kind"}:
            raise ValueError("correction.kind is none, so level, low and high have no effect; remove them")
        if self.kind == "tis" and "low" in self.model_fields_set:
            raise ValueError("tis has no lower bound; remove correction.low or use icepop")
        if self.low >= self.high:
            raise ValueError(f"correction.low {self.low} must be below correction.high {self.high}")
        return self


class ObjectiveSection(Section):
    """The policy loss. An option that ``loss`` does not use is refused; left out, each has the loss's own default."""

    loss: PolicyLoss = "ppo"
    clip_low: NotNegative | None = None
    """ppo, opsm, clip_cov, gspo, gmpo, cispo, dis: ratios are cut (dis: dropped) below ``1 - clip_low``; gmpo:
    log-ratios below ``-clip_low``."""
    clip_high: NotNegative | None = None
    dual_clip: Annotated[float, Field(gt=1)] | None = None
    """ppo: a token with a negative advantage A loses at most ``-dual_clip * A``."""
    tau: Positive | None = None
    """dro: weight of the squared log-ratio. m2po: bound on a mean squared log-ratio."""
    tau_positive: Positive | None = None
    """sapo: steepness of the gate for positive advantages; vespo: how fast the weight of large ratios falls.
    ``tau_negative`` is for the other advantages."""
    tau_negative: Positive | None = None
    k_positive: NotNegative | None = None
    """vespo: power of the episode's ratio for positive advantages; ``k_negative`` for the others."""
    k_negative: NotNegative | None = None
    delta: Positive | None = None
    """dppo: how far a token's probability may move before it is dropped. opsm: how far an episode that is pushed down
    may lie below the old policy, in nats per token."""
    cov_share: Annotated[float, Field(gt=0, le=1)] | None = None
    """clip_cov, kl_cov: share of the update's tokens, those of largest covariance, that are dropped or penalised."""
    cov_kl: Positive | None = None
    """kl_cov: weight of their penalty, (log ratio)^2 / 2."""
    aggregation: Aggregation | None = None
    """Default: ``token_mean``; ``seq_mean_token_mean`` for the losses with one ratio per episode, gspo and gmpo."""
    l_max: Count | None = None
    """The constant length of seq_mean_token_sum_norm, in tokens."""
    old_logprobs: Literal["behaviour", "recompute"] = "behaviour"
    """What ratios are against: the sampler's own log-probabilities, or the trainer's before the step."""
    kl: KlSection = KlSection()
    correction: CorrectionSection = CorrectionSection()

    @property
    def options(self) -> dict[str, float | None]:
        """The options of the loss, defaults filled in."""
        given = {name: getattr(self, name) for name in LOSS_OPTIONS[self.loss]}
        return {name: LOSS_OPTIONS[self.loss][name] if value is None else value for name, value in given.items()}

    @property
    def per_episode(self) -> bool:
        """True for a loss that needs the ratio of whole episodes."""
        return self.loss in PER_EPISODE_LOSSES

    @property
    def needs_update(self) -> bool:
        """True for a loss that must know all tokens of the update before it treats one."""
        return self.per_episode or self.loss in CHOOSING_LOSSES

    @property
    def one_ratio(self) -> bool:
        """True for a loss with one ratio per episode in place of the tokens'."""
        return self.loss in EPISODE_RATIO_LOSSES

    @property
    def weighting(self) -> Aggregation:
        """The aggregation, default filled in."""
        return self.aggregation or ("seq_mean_token_mean" if self.one_ratio else "token_mean")

    @model_validator(mode="after")
    def _check(self) -> ObjectiveSection:
        for name in sorted({name for options in LOSS_OPTIONS.values() for name in options}):
            if name not in LOSS_OPTIONS[self.loss] and name in self.model_fields_set:
                known = ", ".join(LOSS_OPTIONS[self.loss]) or "none"
                raise ValueError(f"loss {self.loss} has no {name}; remove it. Options of {self.loss}: {known}")
        if self.loss in ("ppo", "opsm", "clip_cov", "gspo", "cispo", "dis") and (self.options["clip_low"] or 0) > 1:
            raise ValueError(f"clip_low is {self.clip_low}, but a ratio is never below 0; give at most 1")
        if (self.weighting == "seq_mean_token_sum_norm") != (self.l_max is not None):
            raise ValueError("l_max is needed by seq_mean_token_sum_norm and by nothing else")
        if self.one_ratio and self.weighting != "seq_mean_token_mean":
            raise ValueError(f"{self.loss} has one ratio per episode: its aggregation is seq_mean_token_mean")
        self._check_correction()
        return self

    def _check_correction(self) -> None:
        if self.correction.kind == "none":
            return
        if self.old_logprobs == "behaviour":
            raise ValueError(
                "with old_logprobs: behaviour the ratio already is against the sampler; "
                "use old_logprobs: recompute with a correction, or correction.kind: none"
            )
        if self.one_ratio and self.correction.level == "token":
            raise ValueError(f"{self.loss} has one ratio per episode: correction.level must be sequence or geometric")
