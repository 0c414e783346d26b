"""Several agents in one run: each episode, or each group, is played by one of them, drawn by seed."""

from __future__ import annotations

import hashlib
import inspect
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from forkgym.agents.base import Agent, Episode, Policy, SamplingParams
from forkgym.agents.registry import AGENTS, make_agent
from forkgym.envs.core import CodingEnv
from forkgym.errors import ConfigError
from forkgym.registry import resolve
from forkgym.sandboxes.base import Mount


class MixAgent:
    """Draws who plays: ``agents`` are pairs of an agent and its weight.

    ``per`` is ``episode``, or ``group``: then all members of a group are played by the same agent, and their rewards
    compare. The draw depends on ``seed``, the group and (per episode) the episode's seed alone, so a retry and a
    resumed run are played by the same agent. An episode's ``harness`` is the name of the agent that played it.
    """

    name = "mix"

    def __init__(
        self, agents: Sequence[tuple[Agent, float]], *, per: Literal["episode", "group"] = "episode", seed: int = 0
    ) -> None:
        if per not in ("episode", "group"):
            raise ConfigError(f"a mix of agents is drawn per 'episode' or 'group', not {per!r}")
        if not agents or not all(weight > 0 and math.isfinite(weight) for _, weight in agents):
            raise ConfigError("a mix of agents needs at least one, each with a weight above 0")
        self._agents, self._per, self._seed = list(agents), per, seed

    @property
    def mounts(self) -> tuple[Mount, ...]:
        """What the sandboxes must show, for the agents that ask for something: ``CodingEnv(mounts=agent.mounts)``."""
        every = [mount for agent, _ in self._agents for mount in getattr(agent, "mounts", ())]
        return tuple(dict.fromkeys(every))

    def pick(self, group: str, seed: int) -> Agent:
        """Who plays the episode of this seed in this group."""
        drawn = f"{self._seed}/{group}" if self._per == "group" else f"{self._seed}/{group}/{seed}"
        share = int.from_bytes(hashlib.sha256(drawn.encode()).digest()[:8], "big") / 2**64
        left = share * sum(weight for _, weight in self._agents)
        for agent, weight in self._agents:
            left -= weight
            if left < 0:
                return agent
        return self._agents[-1][0]

    def run(
        self,
        env: CodingEnv,
        policy: Policy | None,
        *,
        task: str,
        seed: int,
        sampling: SamplingParams,
        episode: str,
        group: str,
    ) -> Episode:
        """Let the drawn agent play; see ``Agent.run``."""
        return self.pick(group, seed).run(
            env, policy, task=task, seed=seed, sampling=sampling, episode=episode, group=group
        )


def make_mix(
    agents: Mapping[str, float | Mapping[str, Any]],
    *,
    per: Literal["episode", "group"] = "episode",
    seed: int = 0,
    **parts: Any,
) -> MixAgent:
    """A mix of agents by name: ``{"bash": 0.5, "tools": {"weight": 0.5, "actions": "xml"}}``.

    Each gets its own options and those of ``parts`` that it takes. One agent in several ways: ``agent`` says which, and
    the name is that in the records: ``{"short": {"agent": "bash", "observation_chars": 500}, "bash": 1}``.
    Raises ``ConfigError``.
    """
    made: list[tuple[Agent, float]] = []
    for name, spec in agents.items():
        options = dict(spec) if isinstance(spec, Mapping) else {"weight": spec}
        weight = options.pop("weight", 1.0)
        if not isinstance(weight, int | float):
            raise ConfigError(f"agent {name!r}: its weight is a number, not {weight!r}")
        kind = str(options.pop("agent", name))
        takes = inspect.signature(resolve("agent", kind, AGENTS)).parameters
        given = {key: value for key, value in parts.items() if key in takes}
        agent = make_agent({"name": kind, **options}, **given)
        agent.name = name
        made.append((agent, float(weight)))
    return MixAgent(made, per=per, seed=seed)


def agent_of(agent: Agent, group: str, seed: int) -> Agent:
    """The agent that really plays: of a mix the one drawn."""
    while isinstance(agent, MixAgent):
        agent = agent.pick(group, seed)
    return agent
