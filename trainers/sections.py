"""The sections of a recipe that say what a run works on and with. This module imports no torch."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from forkgym.envs.base import FailureKind
from forkgym.trainers.kinds import PrivilegedInput

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
_ENGINE_SETTINGS = {
    "model": "model.name",
    "dtype": "model.dtype",
    "max_num_seqs": "rollout.concurrency",
    "max_model_len": "sampling.context",
    "logprobs_mode": "the trainer, which needs the probabilities that were sampled from",
    "worker_extension_cls": "the trainer, which sends weights through it",
    "generation_config": "the trainer, which samples as section sampling says",
}


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

    engine: Literal["hf", "vllm"] = "hf"
    """What samples: ``hf``, the built-in one, or ``vllm`` (extra ``vllm``). Both get new weights after each step and
    stamp their version on every token. A served endpoint is no choice: it takes no new weights."""
    engine_options: dict[str, Any] = Field(default_factory=dict)
    """More arguments of ``vllm.LLM``, such as ``{gpu_memory_utilization: 0.4}``."""
    ray_address: str | None = None
    """Play in worker processes of Ray (extra ``ray``), each with its own sandboxes: ``auto`` for the cluster this
    machine belongs to, ``local`` for one started here, or an address. The engine stays with the trainer."""
    groups: Count = 4
    group_size: Count = 8
    concurrency: Count = 8
    retries: Annotated[int, Field(ge=0)] | dict[FailureKind, Annotated[int, Field(ge=0)]] = 1
    """A failed episode is played again this often; or by kind of failure, such as ``{sandbox: 2, engine: 1}``."""
    max_failed_share: Annotated[float, Field(ge=0, lt=1)] = 0.5
    """If more of a step's episodes fail than this, the run stops with the reasons."""

    @model_validator(mode="after")
    def _check(self) -> RolloutSection:
        if self.engine == "hf" and self.engine_options:
            raise ValueError("rollout.engine_options are those of vllm; set rollout.engine: vllm, or remove them")
        if taken := sorted(set(self.engine_options) & _ENGINE_SETTINGS.keys()):
            raise ValueError(f"rollout.engine_options.{taken[0]} is set by {_ENGINE_SETTINGS[taken[0]]}; remove it")
        return self


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


class DataSection(Section):
    """Demonstrations: a file of episodes, logged runs, or the reference solutions of the training split, played for the
    occasion."""

    path: str | None = None
    runs: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Rejection sampling: learn from the good episodes of these run folders, folders with an ``episodes.jsonl``, or
    files. The same tokens count once."""
    max_per_task: Count | None = None
    """Of ``runs``: at most this many episodes of one task, drawn by the seed, so that easy tasks do not crowd out hard
    ones."""
    episodes_per_task: Count = 1
    min_reward: float | None = 1.0
    """Keep demonstrations with at least this reward; ``null`` keeps all."""
    concurrency: Count = 8

    @model_validator(mode="after")
    def _check(self) -> DataSection:
        given = "path" if self.path is not None else "runs"
        if self.path is not None and self.runs:
            raise ValueError("give data.path or data.runs, not both")
        if (self.path is not None or self.runs) and self.model_fields_set & {"episodes_per_task", "concurrency"}:
            raise ValueError(f"data.{given} is given, so nothing is played: remove episodes_per_task and concurrency")
        if self.max_per_task is not None and not self.runs:
            raise ValueError("data.max_per_task is about data.runs; give them, or remove it")
        return self
