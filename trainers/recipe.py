"""What a training run is, as data. Every option is honoured or refused; an unknown key is an error.

Read a recipe with ``forkgym.trainers.recipe_file.load``. This module imports no torch.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from forkgym.trainers.loss_sections import AdvantageSection, GaeSection, ObjectiveSection, OverlongSection
from forkgym.trainers.offline.sections import (
    LoggedSection,
    PairSection,
    SelfTeacherSection,
    TeacherSection,
    WeightSection,
)
from forkgym.trainers.sections import (
    AgentSection,
    BatchSection,
    CheckpointSection,
    Count,
    CriticSection,
    DataSection,
    EnvSection,
    EvalSection,
    ModelSection,
    MonitorSection,
    OptimizerSection,
    Positive,
    RewardSection,
    RolloutSection,
    SamplingSection,
    Section,
)


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
    def _check_engine(self) -> OnlineRecipe:
        if self.rollout.engine == "vllm" and self.model.name == "tiny-random":
            raise ValueError("rollout.engine vllm reads a model's files, and tiny-random has none: use hf")
        return self

    @model_validator(mode="after")
    def _check_minibatches(self) -> OnlineRecipe:
        if self.batch.minibatches > self.rollout.groups * self.rollout.group_size:
            raise ValueError("batch.minibatches is larger than the number of episodes in a step")
        if self.objective.loss in ("m2po", "opsm") and self.objective.old_logprobs == "recompute" and self.updates == 1:
            raise ValueError(
                "with old_logprobs: recompute and one update per step every ratio is 1, "
                f"so {self.objective.loss} masks nothing: use old_logprobs: behaviour, more batch.epochs or "
                "batch.minibatches, or another loss"
            )
        return self


class GrpoRecipe(OnlineRecipe):
    """Multi-turn GRPO and its relatives."""

    algorithm: Literal["grpo"]
    advantage: AdvantageSection = AdvantageSection()
    overlong: OverlongSection = OverlongSection()

    @model_validator(mode="after")
    def _check(self) -> GrpoRecipe:
        if self.advantage.estimator == "gdpo" and self.reward.weights is None:
            raise ValueError("advantage.estimator gdpo normalises reward components: give reward.weights")
        if self.advantage.estimator == "gdpo" and self.reward.gate is not None:
            raise ValueError("advantage.estimator gdpo sums components by weight: remove reward.gate")
        if self.advantage.estimator == "gdpo" and self.overlong.limit is not None:
            raise ValueError("advantage.estimator gdpo sums components by weight: remove overlong")
        if self.rollout.group_size == 1 and self.advantage.baseline != "zero":
            raise ValueError(
                f"rollout.group_size is 1, but {self.advantage.estimator} compares the members of a group; give 2"
            )
        if self.advantage.k is not None and self.advantage.k > self.rollout.group_size:
            raise ValueError(f"advantage.k is {self.advantage.k}, above rollout.group_size {self.rollout.group_size}")
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
        if self.data.runs and (unused := sorted({"env", "agent"} & self.model_fields_set)):
            raise ValueError(f"data.runs is given, so nothing is played: remove the section {unused[0]}")
        return self


class LoggedRecipe(Run):
    """What trainers state that learn from logged episodes and play none."""

    data: LoggedSection

    @model_validator(mode="after")
    def _check_logged(self) -> LoggedRecipe:
        if self.batch.model_fields_set & {"epochs", "minibatches"}:
            raise ValueError("one update is made per step: remove batch.epochs and batch.minibatches")
        if "env" in self.model_fields_set:
            raise ValueError("nothing is played: remove the section env; data.runs says what is learnt from")
        return self


class DpoRecipe(LoggedRecipe):
    """Direct preference optimisation on pairs of logged episodes."""

    algorithm: Literal["dpo"]
    pairs: PairSection = PairSection()
    pairs_per_step: Count = 8


class AwrRecipe(LoggedRecipe):
    """Advantage-weighted or reward-weighted regression on logged episodes."""

    algorithm: Literal["awr"]
    weight: WeightSection = WeightSection()
    episodes_per_step: Count = 16


class TaughtRecipe(OnlineRecipe):
    """What trainers state that learn from a teacher's judgement of what the policy samples, and not from rewards."""

    @model_validator(mode="before")
    @classmethod
    def _expect_silent_groups(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Groups of equal reward are no sign of collapse here, unless the recipe says so."""
        monitor: Any = values.get("monitor", {})
        return {**values, "monitor": {"silent": None, **monitor}} if isinstance(monitor, dict) else values


class DistillRecipe(TaughtRecipe):
    """On-policy distillation: the student samples, teachers judge its tokens."""

    algorithm: Literal["distill"]
    teachers: Annotated[tuple[TeacherSection, ...], Field(strict=False, min_length=1)]
    """Each a mapping of ``model``, ``start_from``, ``tasks`` (a pattern of task ids, default all) and ``weight``."""


class SelfDistillRecipe(TaughtRecipe):
    """On-policy distillation from the student itself, told how the episode ended."""

    algorithm: Literal["self_distill"]
    teacher: SelfTeacherSection = SelfTeacherSection()


LoopRecipe = GrpoRecipe | PpoRecipe | DistillRecipe | SelfDistillRecipe
Recipe = LoopRecipe | SftRecipe | DpoRecipe | AwrRecipe
RECIPES: dict[str, type[Recipe]] = {
    "grpo": GrpoRecipe,
    "ppo": PpoRecipe,
    "sft": SftRecipe,
    "dpo": DpoRecipe,
    "awr": AwrRecipe,
    "distill": DistillRecipe,
    "self_distill": SelfDistillRecipe,
}
MODULES = {
    "dpo": "offline.dpo",
    "awr": "offline.regression",
    "distill": "offline.distill",
    "self_distill": "offline.distill",
}
"""Where algorithms are run whose module in this room is not named like them."""
