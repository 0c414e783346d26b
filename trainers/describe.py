"""The resolved definition of a run's loss, in words and numbers: what is computed, not which options were set."""

from __future__ import annotations

from forkgym.trainers.loss_sections import ObjectiveSection
from forkgym.trainers.recipe import (
    AwrRecipe,
    DistillRecipe,
    DpoRecipe,
    GrpoRecipe,
    LoopRecipe,
    OnlineRecipe,
    PpoRecipe,
    Recipe,
    SelfDistillRecipe,
    SftRecipe,
)
from forkgym.trainers.sections import RewardSection

_STD = {
    "sample": "the group's sample standard deviation (divisor n-1)",
    "population": "the group's population standard deviation (divisor n)",
    "loo": "the sample standard deviation of the other members (1 where they agree)",
    "mean": "the group's mean reward",
}
_BASELINE = {
    "mean": " minus the group's mean",
    "loo": " minus the mean of the other members",
    "length": " minus the group's mean weighted by trained tokens",
    "zero": "",
}
_AGGREGATION = {
    "token_mean": "sum over trained tokens / number of trained tokens in the update",
    "seq_mean_token_mean": "mean over episodes of the mean over the episode's trained tokens",
    "seq_mean_token_sum_norm": "mean over episodes of the sum over the episode's trained tokens / {l_max}",
}
_CLIPPED = "-min(ratio * A, clip(ratio, {one_minus_low:g}, {one_plus_high:g}) * A)"
_LOSSES = {
    "ppo": _CLIPPED,
    "gspo": _CLIPPED + ", where ratio is the geometric mean over the episode's trained tokens",
    "gmpo": "-exp(mean over the episode of log ratio, each at most {clip_high:g} where A > 0, else at least "
    "-{clip_low:g}) * A",
    "cispo": "-constant(clip(ratio, {one_minus_low:g}, {one_plus_high:g})) * A * log pi",
    "sapo": "-(4 / tau) * sigmoid(tau * (ratio - 1)) * A, tau = {tau_positive:g} where A > 0, else {tau_negative:g}",
    "topr": "-A * log pi where A > 0, else -constant(min(ratio, 1)) * A * log pi",
    "dro": "-(A * log pi - {tau:g} / 2 * (log ratio)^2)",
    "dppo": "-ratio * A; 0 where pi has moved by more than {delta:g} in the direction of A",
    "dis": "-constant(ratio, 0 outside ({one_minus_low:g}, {one_plus_high:g})) * A * log pi",
    "vespo": "-constant(w^k * e^(tau * (1 - w))) * A * log pi, w the product of the episode's ratios, k = "
    "{k_positive:g} and tau = {tau_positive:g} where A > 0, else {k_negative:g} and {tau_negative:g}",
    "opsm": _CLIPPED + "; 0 in episodes with mean A < 0 whose mean log ratio is below -{delta:g}",
    "m2po": "-ratio * A; of the tokens where A * log ratio > 0, those of largest (log ratio)^2 are 0, as few as leave "
    "a mean of at most {tau:g} among the others of these in the update",
    "clip_cov": _CLIPPED + "; 0 for the {cov_share:g} of the update's tokens with the largest (A - mean A) * (log pi - "
    "mean log pi)",
    "kl_cov": "-ratio * A; + {cov_kl:g} * (log ratio)^2 / 2 for the {cov_share:g} of the update's tokens with the "
    "largest (A - mean A) * (log pi - mean log pi)",
    "reinforce": "-A * log pi",
}
_KL = {
    "k2": "(log pi - log ref)^2 / 2, whose gradient is that of KL(pi || ref)",
    "k3": "ref/pi - 1 - log(ref/pi), whose gradient is that of KL(ref || pi)",
}


def resolved(recipe: Recipe) -> str:
    """Several lines of plain text."""
    if isinstance(recipe, SftRecipe):
        return _sft(recipe)
    if isinstance(recipe, DpoRecipe | AwrRecipe):
        return "\n".join([*(_dpo(recipe) if isinstance(recipe, DpoRecipe) else _awr(recipe)), *_common(recipe)])
    if isinstance(recipe, DistillRecipe | SelfDistillRecipe):
        return "\n".join([*_policy(recipe, _distillation(recipe)), *_teachers(recipe), *_common(recipe)])
    advantage = _advantage(recipe) if isinstance(recipe, GrpoRecipe) else _estimation(recipe)
    critic = [] if isinstance(recipe, GrpoRecipe) else [f"critic      {_critic(recipe)}"]
    return "\n".join([*_policy(recipe, advantage), *critic, *_common(recipe)])


def _sft(recipe: SftRecipe) -> str:
    return "\n".join(
        [
            "loss        -log pi(token), mean over the sampled tokens of the step's demonstrations",
            f"step        1 update on {recipe.episodes_per_step} demonstrations; {recipe.steps} steps",
            *_common(recipe),
        ]
    )


def _dpo(recipe: DpoRecipe) -> list[str]:
    pairs = recipe.pairs
    return [
        f"loss        -log sigmoid({pairs.beta:g} * (log pi/ref of the chosen episode - that of the rejected)), mean",
        "            over the step's pairs; log pi is the sum over all sampled tokens; ref is the starting policy",
        f"pairs       of one {pairs.within} and one prompt, rewards differ by more than {pairs.margin:g}; at most "
        f"{pairs.per_group} of a {pairs.within}",
        f"step        1 update on {recipe.pairs_per_step} pairs; {recipe.steps} steps",
    ]


def _awr(recipe: AwrRecipe) -> list[str]:
    weight = recipe.weight
    against = _BASELINE["zero" if weight.kind == "reward" else weight.baseline or "mean"]
    return [
        "loss        -w * log pi(token), sum over the step's sampled tokens / their number",
        f"weight      w = exp((reward{against}) / {weight.beta:g}), at most {weight.max:g}; one per episode, "
        "not normalised",
        f"step        1 update on {recipe.episodes_per_step} episodes; {recipe.steps} steps",
    ]


def _distillation(recipe: DistillRecipe | SelfDistillRecipe) -> str:
    text = "log teacher(token) - log pi(token) before the step, held constant: minus the reverse KL of that token; "
    return text + "rewards are not trained on; failed episodes are left out"


def _teachers(recipe: DistillRecipe | SelfDistillRecipe) -> list[str]:
    if isinstance(recipe, DistillRecipe):
        each = [
            f"{t.weight:g} * {t.model}{f' with {t.start_from}' if t.start_from else ''} in tasks {t.tasks!r}"
            for t in recipe.teachers
        ]
        mean = "log teacher is the mean of the task's teachers, weighted: " if len(each) > 1 else ""
        return [f"teacher     {mean}{'; '.join(each)}"]
    teacher = recipe.teacher
    decay = 0.95 if teacher.decay is None else teacher.decay
    who = "the starting policy" if teacher.weights == "start" else f"an average of the policy, decay {decay:g}"
    return [
        f"teacher     {who}, which reads a message with the episode's verdict before the episode; the policy does not"
    ]


def _policy(recipe: LoopRecipe, advantage: str) -> list[str]:
    objective, rollout = recipe.objective, recipe.rollout
    lines = [
        f"step        {rollout.groups} groups of {rollout.group_size} episodes at temperature "
        f"{recipe.sampling.temperature:g}; {recipe.batch.epochs} x {recipe.batch.minibatches} updates; "
        f"{recipe.steps} steps",
        f"advantage   {advantage}",
        f"ratio       {_ratio(recipe)}",
        f"token loss  {_token_loss(objective)}",
        f"loss        {_AGGREGATION[objective.weighting].format(l_max=objective.l_max)}",
    ]
    if objective.correction.kind != "none":
        lines.insert(4, f"weight      {_correction(recipe)}")
    if objective.kl.coefficient > 0:
        lines.append(
            f"kl          + {objective.kl.coefficient:g} * {_KL[objective.kl.kind]}; ref is the starting policy"
        )
    return lines


def _estimation(recipe: PpoRecipe) -> str:
    gae = recipe.gae
    lam = f"{0.95 if gae.lam is None else gae.lam:g}" if gae.alpha is None else f"1 - 1 / max({gae.alpha:g} * L, 1)"
    text = f"GAE over {gae.level}s of the reward ({_reward(recipe.reward)}), gamma {gae.gamma:g}, lambda {lam}"
    text += "; each turn has its own reward" if gae.rewards == "turns" else ""
    text += "; mean 0 and deviation 1 over all trained tokens of the step" if gae.whiten else ""
    cut = {"score": "", "drop": "; truncated episodes are left out"}
    return text + cut.get(gae.truncated, "; truncated episodes go on with the critic's value") + "; failed are left out"


def _critic(recipe: PpoRecipe) -> str:
    critic, optimizer = recipe.critic, recipe.critic.optimizer
    trunk = "the policy's hidden states" if critic.trunk == "shared" else "its own copy of the model"
    text = f"{trunk}{' and ' + ', '.join(critic.inputs) + ' before the turn' if critic.inputs else ''}; "
    text += f"max of (V - R)^2 / 2 and that of V moved by at most {critic.clip:g}" if critic.clip else "(V - R)^2 / 2"
    text += f", R with lambda {recipe.gae.critic_lam:g}; {critic.updates} updates a step, AdamW lr {optimizer.lr:g}"
    text += f"; alone in the first {critic.warmup_steps} steps" if critic.warmup_steps else ""
    return text + (f"; + {critic.hindsight:g} * error of the outcome it expects" if critic.hindsight else "")


def _token_loss(objective: ObjectiveSection) -> str:
    options = objective.options
    low, high = options.get("clip_low") or 0.0, options.get("clip_high") or 0.0
    text = _LOSSES[objective.loss].format(**options, one_minus_low=1 - low, one_plus_high=1 + high)
    if (dual := options.get("dual_clip")) is not None:
        text += f", at most -{dual:g} * A where A < 0"
    return text


def _reward(reward: RewardSection) -> str:
    if reward.weights is None:
        return str(reward.spec)
    total = " + ".join(f"{weight:g} {name}" for name, weight in reward.weights.items())
    return total if reward.gate is None else f"{reward.gate} * ({total})"


def _advantage(recipe: GrpoRecipe) -> str:
    advantage = recipe.advantage
    if advantage.estimator == "gdpo":
        text = "gdpo: each reward component minus the group's mean"
    else:
        text = f"{advantage.estimator}: reward ({_reward(recipe.reward)}){_BASELINE[advantage.baseline]}"
    if advantage.std_kind != "none":
        text += f", over {_STD[advantage.std_kind]} + {advantage.eps:g}"
    if advantage.estimator == "gigpo":
        text += (
            f", plus {advantage.turn_weight:g} * the same of the turn's return (discount {advantage.discount:g} a turn)"
        )
        text += " among turns of the group that began with the same observation"
    if advantage.estimator == "gdpo":
        text += f", times its weight, added up ({_reward(recipe.reward)})"
    if advantage.estimator == "pass_at_k":
        text = f"pass_at_k: {advantage.k} times the mean over the sets of {advantage.k} members that hold the episode"
        text += f" of the best reward ({_reward(recipe.reward)}) with it minus that without it"
    if advantage.estimator == "leap":
        text = "leap: matches won minus lost within the group, over the number of the others; reward "
        text += f"({_reward(recipe.reward)}) decides, between equal ones above 0 the smaller number of trained tokens"
        text += f" (equal: within {advantage.tolerance:g})"
    elif advantage.estimator == "river":
        text = (
            f"river: calibrated reward minus the group's mean of it, from the reward ({_reward(recipe.reward)}): 1 for "
        )
        text += f"the best, {advantage.credit:g} * rank / number of the distinct ones below for others above 0, else 0"
        text += f" (distinct: more than {advantage.tolerance:g} apart)"
    elif advantage.baseline != "zero":
        text += f"; 0 for a group whose rewards lie within {advantage.tolerance:g}"
    if advantage.whitened:
        text += "; then mean 0 and deviation 1 over all trained tokens of the step"
    if advantage.estimator == "gpg":
        text += "; times members / members of groups with a signal"
    if advantage.estimator == "dapo":
        text += f", which is replaced by a new group up to {advantage.max_rounds - 1} times"
    if recipe.overlong.limit is not None:
        text += f"; the reward loses up to {recipe.overlong.penalty:g}, in a line from "
        text += f"{recipe.overlong.limit - recipe.overlong.width} to {recipe.overlong.limit} sampled tokens"
    if advantage.truncated == "drop":
        text += "; truncated episodes are left out"
    return text + "; failed episodes are left out"


def _ratio(recipe: OnlineRecipe) -> str:
    if recipe.objective.old_logprobs == "behaviour":
        return "pi(token) / sampler's own probability of it"
    if recipe.updates == 1:
        return "pi(token) / its own value held constant (1: one update per step), gradient of log pi"
    return "pi(token) / the trainer's probability of it before the step"


def _correction(recipe: OnlineRecipe) -> str:
    correction = recipe.objective.correction
    level = {"token": "token", "sequence": "product over the episode", "geometric": "geometric mean over the episode"}
    text = f"trainer / sampler probability before the step, per {level[correction.level]}"
    if correction.kind == "tis":
        return f"{text}, at most {correction.high:g}"
    return f"{text}, 0 outside [{correction.low:g}, {correction.high:g}] (dropped tokens stay in the denominator)"


def _common(recipe: Recipe) -> list[str]:
    optimizer = recipe.optimizer
    trained = f"the top {n} layers and the final norm" if (n := recipe.model.train_layers) else "all weights"
    schedule = optimizer.schedule + (f", warm-up {optimizer.warmup_steps} steps" if optimizer.warmup_steps else "")
    return [
        f"optimizer   AdamW on {trained} of {recipe.model.name}: lr {optimizer.lr:g} ({schedule}), betas "
        f"{optimizer.betas[0]:g} {optimizer.betas[1]:g}, weight decay {optimizer.weight_decay:g}, "
        f"gradient norm at most {optimizer.max_grad_norm:g}",
    ]
