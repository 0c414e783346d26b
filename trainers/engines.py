"""What samples the episodes of a trainer: an engine that returns exact ids and takes new weights."""

from __future__ import annotations

from forkgym.agents.models import LanguageModel, compute_dtype, model_folder
from forkgym.agents.policies.hf import HFPolicy
from forkgym.agents.policies.vllm import VLLMPolicy
from forkgym.trainers.player import Syncs
from forkgym.trainers.recipe import OnlineRecipe


def open_engine(recipe: OnlineRecipe, language: LanguageModel, version: int = 0) -> Syncs:
    """The recipe's ``rollout.engine`` with the weights of ``language``, which have this ``version``.

    Raises ``MissingExtraError`` without the engine's package, ``PolicyError`` if it cannot start or refuses the
    weights.
    """
    dtype, slots, context = compute_dtype(recipe.model.dtype), recipe.rollout.concurrency, recipe.sampling.context
    if recipe.rollout.engine == "hf":
        return HFPolicy(
            language.model, dtype=dtype, slots=slots, context=context, tokenizer=language.tokenizer, version=version
        )
    policy = VLLMPolicy(
        model_folder(recipe.model.name),
        dtype=str(dtype).removeprefix("torch."),
        slots=slots,
        context=context,
        version=version - 1,
        engine=recipe.rollout.engine_options,
    )
    try:
        policy.update(language.model.state_dict())  # the folder's weights are not those of a resumed run
    except BaseException:
        policy.close()
        raise
    return policy
