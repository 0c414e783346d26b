"""What a training run is, as data. Every option is honoured or refused; an unknown key is an error.

Read a recipe with ``forkgym.trainers.recipe_file.load``. This module imports no torch.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from forkgym.envs.base import FailureKind
from forkgym.trainers.kinds import (
    LOSS_OPTIONS,
    PER_EPISODE_LOSSES,
    Aggregation,
    Baseline,
    CorrectionKind,
    CorrectionLevel,
    PolicyLoss,
    PrivilegedInput,
    StdKind,
    TruncatedRule,
)

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]

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
}
"""Baseline and divisor of each advantage estimator."""
WHITENED = ("reinforce_pp", "reinforce_pp_baseline", "gdpo")
"""Estimators whose advantages are whitened over all trained tokens of the step."""


class Section(BaseModel):
    """Base of all sections: no unknown key, no silent conversion, no change after reading."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)


class ModelSection(Section):
    """The language model that is trained."""

    name: str = "smollm2-135m"
    """``smollm2-135m``, ``tiny-random``, or the path of a directory in the format of transformers."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """What matrix products are computed in. Weights are kept in float32. ``auto``: bfloat16 where the CPU has it."""
    train_layers: Count | None = None
    """Train this many top layers and the final norm; ``null`` trains all weights, embeddings included."""
    start_from: str | None = None
    """A checkpoint, or a run folder (its latest checkpoint), whose weights replace the model's own."""


class EnvSection(Section):
    """Where episodes happen."""

    id: str = "forkgym/SWE-v0"
    tasks: str = "swe/tiny/*"
    split: str = "train"
    eval_split: str = "test"
    options: dict[str, Any] = Field(default_factory=dict)
    """More options of the environment, such as ``max_turns`` or ``sandbox``."""

    @model_validator(mode="after")
    def _check(self) -> EnvSection:
        for name, where in (("tasks", "env.tasks"), ("split", "env.split"), ("reward", "the section reward")):
            if name in self.options:
                raise ValueError(f"env.options.{name} is set by {where}; write it there")
        return self


class AgentSection(Section):
    """Who acts: an agent's name or dotted path, and its options."""

    name: str = "bash"
    format: str | dict[str, Any] = "chatml"
    """A chat format's name, or a mapping of ``name`` and its options."""
    options: dict[str, Any] = Field(default_factory=dict)


class SamplingSection(Section):
    """How the policy samples. Only temperature reshapes the distribution, and the trainer applies it too."""

    temperature: Positive = 1.0
    max_tokens: Count = 256
    context: Annotated[int, Field(ge=2)] = 1024
    """Window in tokens for prompt and completion together."""


class RolloutSection(Section):
    """How episodes are collected for one step."""

    groups: Count = 4
    group_size: Count = 8
    concurrency: Count = 8
    retries: Annotated[int, Field(ge=0)] | dict[FailureKind, Annotated[int, Field(ge=0)]] = 1
    """A failed episode is played again this often; or by kind of failure, such as ``{sandbox: 2, engine: 1}``."""
    max_failed_share: Annotated[float, Field(ge=0, lt=1)] = 0.5
    """If more of a step's episodes fail than this, the run stops with the reasons."""


class RewardSection(Section):
    """The environment's reward: one function, or a weighted sum of several."""

    name: str | None = None
    """By name or dotted path, such as ``resolved`` (the default), ``score`` or ``tests``."""
    weights: dict[str, float] | None = None
    """Instead of ``name``: reward functions by name, and how much each counts."""
    gate: str | None = None
    """A reward function that the weighted sum is multiplied by."""

    @model_validator(mode="after")
    def _check(self) -> RewardSection:
        if self.name is not None and self.weights is not None:
            raise ValueError("give reward.name or reward.weights, not both")
        if self.gate is not None and self.weights is None:
            raise ValueError("reward.gate applies to reward.weights only; remove it")
        return self

    @property
    def spec(self) -> str | dict[str, Any]:
        """As the environment takes it."""
        return self.name or "resolved" if self.weights is None else {"weights": self.weights, "gate": self.gate}


class AdvantageSection(Section):
    """How rewards become advantages."""

    estimator: Literal[
        "grpo", "dr_grpo", "rloo", "dapo", "maxrl", "opo", "reinforce", "reinforce_pp", "reinforce_pp_baseline", "gdpo"
    ] = "grpo"
    std: StdKind | None = None
    """Divisor of grpo and dapo; ``null`` takes the estimator's own (grpo and dapo: sample)."""
    eps: NotNegative = 1e-6
    tolerance: NotNegative = 1e-4
    """Groups whose rewards lie within this range carry no signal and get exactly 0."""
    truncated: TruncatedRule = "score"
    """Episodes cut off by a limit count with what they scored, or are left out of loss and baseline (``drop``)."""
    rounds: Count | None = None
    """dapo only: how often groups without signal are replaced by new ones within a step (default 3)."""

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
    def max_rounds(self) -> int:
        """Rounds of collection in one step."""
        return (self.rounds or 3) if self.estimator == "dapo" else 1

    @model_validator(mode="after")
    def _check(self) -> AdvantageSection:
        if self.estimator in ("dr_grpo", "rloo") and self.std not in (None, "none"):
            raise ValueError(f"{self.estimator} does not divide by a deviation; std must be none, not {self.std}")
        if self.estimator not in ("grpo", "dapo", "dr_grpo", "rloo") and self.std is not None:
            raise ValueError(f"std is an option of grpo and dapo, not of {self.estimator}; remove it")
        if self.std == "mean":
            raise ValueError("std: mean is what the estimator maxrl does; write estimator: maxrl")
        if self.std_kind == "none" and "eps" in self.model_fields_set:
            raise ValueError("eps has no effect without a deviation to divide by; remove it")
        if self.rounds is not None and self.estimator != "dapo":
            raise ValueError("rounds applies to the estimator dapo only; remove it")
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
    """ppo, gspo, gmpo, cispo: ratios are cut below ``1 - clip_low`` (gmpo: log-ratios below ``-clip_low``)."""
    clip_high: NotNegative | None = None
    dual_clip: Annotated[float, Field(gt=1)] | None = None
    """ppo: a token with a negative advantage A loses at most ``-dual_clip * A``."""
    tau: Positive | None = None
    """dro: weight of the squared log-ratio."""
    tau_positive: Positive | None = None
    """sapo: steepness of the gate for positive advantages; ``tau_negative`` for the others."""
    tau_negative: Positive | None = None
    delta: Positive | None = None
    """dppo: how far a token's probability may move before it is dropped."""
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
        """True for a loss with one ratio per episode."""
        return self.loss in PER_EPISODE_LOSSES

    @property
    def weighting(self) -> Aggregation:
        """The aggregation, default filled in."""
        return self.aggregation or ("seq_mean_token_mean" if self.per_episode else "token_mean")

    @model_validator(mode="after")
    def _check(self) -> ObjectiveSection:
        for name in sorted({name for options in LOSS_OPTIONS.values() for name in options}):
            if name not in LOSS_OPTIONS[self.loss] and name in self.model_fields_set:
                known = ", ".join(LOSS_OPTIONS[self.loss]) or "none"
                raise ValueError(f"loss {self.loss} has no {name}; remove it. Options of {self.loss}: {known}")
        if self.loss in ("ppo", "gspo", "cispo") and (self.options["clip_low"] or 0) > 1:
            raise ValueError(f"clip_low is {self.clip_low}, but a ratio is never below 0; give at most 1")
        if (self.weighting == "seq_mean_token_sum_norm") != (self.l_max is not None):
            raise ValueError("l_max is needed by seq_mean_token_sum_norm and by nothing else")
        if self.per_episode and self.weighting != "seq_mean_token_mean":
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
        if self.per_episode and self.correction.level == "token":
            raise ValueError(f"{self.loss} has one ratio per episode: correction.level must be sequence or geometric")


class OptimizerSection(Section):
    """AdamW."""

    lr: Positive = 1e-5
    betas: tuple[float, float] = Field(default=(0.9, 0.99), strict=False)
    eps: Positive = 1e-8
    weight_decay: NotNegative = 0.0
    warmup_steps: Annotated[int, Field(ge=0)] = 0
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """After the warm-up: constant, or down to 0 at the last step."""
    max_grad_norm: Positive = 1.0


class BatchSection(Section):
    """How one step's data is cut."""

    micro_batch_tokens: Count = 1024
    """Distinct tokens of one forward and backward pass (a shared prefix counts once): bounds memory, never changes the
    loss."""
    epochs: Count = 1
    minibatches: Count = 1
    """Optimizer updates per step: ``epochs`` passes over ``minibatches`` shares of the episodes."""


class EvalSection(Section):
    """Held-out pass rate during training."""

    every: Count | None = 10
    """Steps between evaluations, also before the first and after the last step; ``null``: never."""
    episodes_per_task: Count = 1
    temperature: NotNegative = 0.0
    max_tasks: Count | None = None

    @model_validator(mode="after")
    def _check(self) -> EvalSection:
        if self.every is None and self.model_fields_set - {"every"}:
            raise ValueError(
                "eval.every is null, so nothing is evaluated: remove the other options of eval, "
                "or replace the whole section by eval={every: null}"
            )
        return self


class MonitorSection(Section):
    """Signs of a policy that collapses. One that lasts for ``patience`` steps is told, or ends the run."""

    entropy: NotNegative | None = 0.01
    """Mean entropy of sampled tokens, in nats, below which a policy says one thing only; ``null``: not watched."""
    length: Annotated[float, Field(gt=0, lt=1)] | None = 0.25
    """Sampled tokens per episode below this share of the first step's."""
    duplicates: Annotated[float, Field(ge=0, lt=1)] | None = 0.9
    """Share of episodes that repeat, token by token, another one of their group above this."""
    silent: Annotated[float, Field(ge=0, lt=1)] | None = 0.9
    """Share of groups whose rewards do not differ above this."""
    patience: Count = 3
    stop: bool = False
    """End the run, with the last step saved, instead of going on with a warning."""


class CheckpointSection(Section):
    """What is kept on disk."""

    every: Count = 10
    keep: Count = 2


class Run(Section):
    """What every training run states."""

    model: ModelSection = ModelSection()
    env: EnvSection = EnvSection()
    optimizer: OptimizerSection = OptimizerSection()
    batch: BatchSection = BatchSection()
    checkpoint: CheckpointSection = CheckpointSection()
    steps: Count
    time_budget_s: Positive | None = None
    """No step begins that would likely end later than this many seconds of training, over all resumed parts."""
    seed: int = 0
    out: str
    """Folder of the run: checkpoints, metrics, episodes."""


class OnlineRecipe(Run):
    """What trainers state that play episodes with the policy they train."""

    agent: AgentSection = AgentSection()
    sampling: SamplingSection = SamplingSection()
    rollout: RolloutSection = RolloutSection()
    reward: RewardSection = RewardSection()
    objective: ObjectiveSection = ObjectiveSection()
    eval: EvalSection = EvalSection()
    monitor: MonitorSection = MonitorSection()

    @property
    def updates(self) -> int:
        """Updates of the policy per step."""
        return self.batch.epochs * self.batch.minibatches

    @property
    def agent_options(self) -> dict[str, Any]:
        """The agent's options, and what the trainer needs of it."""
        return self.agent.options

    @model_validator(mode="after")
    def _check_minibatches(self) -> OnlineRecipe:
        if self.batch.minibatches > self.rollout.groups * self.rollout.group_size:
            raise ValueError("batch.minibatches is larger than the number of episodes in a step")
        return self


class GrpoRecipe(OnlineRecipe):
    """Multi-turn GRPO and its relatives."""

    algorithm: Literal["grpo"]
    advantage: AdvantageSection = AdvantageSection()

    @model_validator(mode="after")
    def _check(self) -> GrpoRecipe:
        if self.advantage.estimator == "gdpo" and self.reward.weights is None:
            raise ValueError("advantage.estimator gdpo normalises reward components: give reward.weights")
        if self.advantage.estimator == "gdpo" and self.reward.gate is not None:
            raise ValueError("advantage.estimator gdpo sums components by weight: remove reward.gate")
        if self.rollout.group_size == 1 and self.advantage.baseline != "zero":
            raise ValueError(
                f"rollout.group_size is 1, but {self.advantage.estimator} compares the members of a group; give 2"
            )
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


class CriticSection(Section):
    """The value function. It may read what the policy never sees, as long as no later action decides it."""

    trunk: Literal["shared", "own"] = "shared"
    """Hidden states of the policy, which the critic does not change, or those of a copy that is trained with it."""
    train_layers: Count | None = None
    """Of an own trunk: train this many top layers and the final norm; ``null`` trains all."""
    inputs: Annotated[tuple[PrivilegedInput, ...], Field(strict=False)] = ()
    """Numbers from ``CodingEnv.privileged`` before each turn. Nothing of a later state or of the outcome is offered: a
    baseline that knows the action's result removes its gradient."""
    hindsight: Positive | None = None
    """Weight of an extra output that learns the episode's reward from every state. It shapes the critic's features and
    is never a baseline."""
    hidden: Count = 128
    updates: Count = 2
    """Updates of the critic per step, each on all of the step's tokens."""
    warmup_steps: Annotated[int, Field(ge=0)] = 0
    """In the first steps only the critic learns."""
    clip: Positive | None = 0.2
    """A value's loss counts the worse of the value and of its change cut to this; ``null`` cuts nothing."""
    optimizer: OptimizerSection = OptimizerSection(lr=1e-3)

    @model_validator(mode="after")
    def _check(self) -> CriticSection:
        if self.train_layers is not None and self.trunk == "shared":
            raise ValueError("critic.train_layers is about an own trunk; write critic.trunk: own, or remove it")
        if len(set(self.inputs)) < len(self.inputs):
            raise ValueError("critic.inputs names an input twice")
        return self


class PpoRecipe(OnlineRecipe):
    """Multi-turn PPO with an asymmetric critic."""

    algorithm: Literal["ppo"]
    gae: GaeSection = GaeSection()
    critic: CriticSection = CriticSection()

    @property
    def agent_options(self) -> dict[str, Any]:
        """The agent's options, and what the trainer needs of it."""
        return {**self.agent.options, **({"privileged": True} if self.critic.inputs else {})}

    @model_validator(mode="after")
    def _check(self) -> PpoRecipe:
        if "privileged" in self.agent.options:
            raise ValueError("agent.options.privileged is set by critic.inputs; remove it")
        if self.gae.rewards == "turns" and "reward_mode" not in self.env.options:
            raise ValueError("gae.rewards: turns needs rewards before the end: set env.options.reward_mode")
        if self.gae.rewards == "final" and self.env.options.get("reward_mode", "final") != "final":
            raise ValueError("env.options.reward_mode gives rewards at each turn: set gae.rewards: turns")
        return self


class DataSection(Section):
    """Demonstrations: a file of episodes, or the reference solutions of the training split, played for the occasion."""

    path: str | None = None
    episodes_per_task: Count = 1
    min_reward: float | None = 1.0
    """Keep demonstrations with at least this reward; ``null`` keeps all."""
    concurrency: Count = 8

    @model_validator(mode="after")
    def _check(self) -> DataSection:
        if self.path is not None and self.model_fields_set & {"episodes_per_task", "concurrency"}:
            raise ValueError("data.path is given, so nothing is played: remove episodes_per_task and concurrency")
        return self


class SftRecipe(Run):
    """Supervised fine-tuning on the sampled tokens of demonstration episodes."""

    algorithm: Literal["sft"]
    agent: AgentSection = AgentSection()
    """Whose prompts the demonstrations have; must be ``bash`` or made like it."""
    data: DataSection = DataSection()
    episodes_per_step: Count = 16

    @model_validator(mode="after")
    def _check(self) -> SftRecipe:
        if self.batch.model_fields_set & {"epochs", "minibatches"}:
            raise ValueError("sft makes one update per step: remove batch.epochs and batch.minibatches")
        if "eval_split" in self.env.model_fields_set:
            raise ValueError("sft evaluates nothing: remove env.eval_split")
        return self


Recipe = GrpoRecipe | PpoRecipe | SftRecipe
RECIPES: dict[str, type[Recipe]] = {"grpo": GrpoRecipe, "ppo": PpoRecipe, "sft": SftRecipe}
