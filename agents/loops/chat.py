"""An agent for servers that give text and no token ids: it sends messages and tools, and keeps the conversation."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from forkgym.agents.base import ChatEndpoint, ChatReply, Episode, Policy, SamplingParams, Step
from forkgym.agents.errors import ContextLengthError
from forkgym.agents.loops.bash import Count
from forkgym.agents.loops.recording import described, finish, recording, timed_step
from forkgym.agents.loops.sampling import turn_seed
from forkgym.agents.loops.tools import SYSTEM, call_action
from forkgym.envs.base import Malformed, ToolCall
from forkgym.envs.core import CodingEnv
from forkgym.envs.text import cap
from forkgym.errors import ConfigError

_NO_CALL = "Call one of the tools. When you are done, call submit."


class ChatAgent:
    """Plays over a ``ChatEndpoint`` with the environment's tools. Its episodes hold no token ids to train on.

    Each call of a turn is a step, in order; a turn without one is a step that says so. The tokens that the server
    counts are charged to the environment's budget and summed up in the metric ``server_tokens``.
    ``observation_chars``: longer observations keep head and tail.
    """

    def __init__(
        self,
        *,
        system: str | None = SYSTEM,
        examples: Sequence[Mapping[str, Any]] = (),
        observation_chars: Count | None = None,
        name: str = "chat",
    ) -> None:
        if observation_chars is not None and observation_chars < 1:
            raise ConfigError(f"observation_chars must be at least 1, not {observation_chars}")
        self.name = name
        self._opening = [*([] if system is None else [{"role": "system", "content": system}]), *examples]
        self._observation_chars = observation_chars

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
        """Play ``task``; see ``Agent.run``. Raises ``ConfigError`` if ``policy`` is no ``ChatEndpoint``."""
        if not hasattr(policy, "reply"):
            raise ConfigError(f"agent {self.name!r} needs a server: --policy endpoint:URL; for a model here, use tools")
        record = Episode(episode, task, group, self.name, seed, sampling=sampling.shaping)
        with recording(record):
            self._play(env, cast("ChatEndpoint", policy), record, sampling)
            finish(record, env)
        return record

    def _play(self, env: CodingEnv, server: ChatEndpoint, record: Episode, sampling: SamplingParams) -> None:
        start = time.perf_counter()
        observation, _ = env.reset(seed=record.seed, options={"task": record.task})
        record.metrics["reset_seconds"] = time.perf_counter() - start
        record.prompt = [*self._opening, {"role": "user", "content": observation["text"]}]
        messages = list(record.prompt)
        for turn in itertools.count():
            params = replace(sampling, seed=turn_seed(record.seed, turn, sampling.seed))
            start = time.perf_counter()
            try:
                reply = server.reply(messages, env.tools, params)
            except ContextLengthError:
                env.truncate("context")
                return
            messages += [reply.message, *self._act(env, record, reply, turn, time.perf_counter() - start)]
            if env.outcome is not None:
                return

    def _act(
        self, env: CodingEnv, record: Episode, reply: ChatReply, turn: int, policy_seconds: float
    ) -> list[Mapping[str, Any]]:
        """Do what the turn says until the episode ends; the answers as messages."""
        env.charge_tokens(reply.tokens)
        record.metrics["server_tokens"] = record.metrics.get("server_tokens", 0.0) + reply.tokens
        text, answers = reply.turn.text, list[Mapping[str, Any]]()
        ids = [call["id"] for call in reply.message.get("tool_calls", ())]
        actions: list[ToolCall | Malformed] = [call_action(call) for call in reply.turn.calls]
        for number, action in enumerate(actions or [Malformed(_NO_CALL)]):
            shown, reward, seconds = timed_step(env, action)
            if self._observation_chars is not None:
                shown = cap(shown, self._observation_chars)
            record.steps.append(Step(turn, text, described(env, action), shown, reward, seconds, policy_seconds))
            who = {"role": "tool", "tool_call_id": ids[number]} if actions else {"role": "user"}
            answers.append({**who, "content": shown})
            if env.outcome is not None:
                break
            text, policy_seconds = "", 0.0  # told once, with the turn's first action
        return answers
