"""``forkgym run``: one episode, shown turn by turn as it happens."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import asdict
from typing import Any

from rich.console import Group
from rich.panel import Panel
from rich.syntax import Syntax
from rich.text import Text

from forkgym.agents.base import ChatFormat, Completion, Episode, Policy, SamplingParams
from forkgym.agents.harnesses.agent import HarnessAgent
from forkgym.cli.output import err, out, print_json
from forkgym.cli.players import player
from forkgym.envs.base import Malformed
from forkgym.envs.core import CodingEnv, StepResult
from forkgym.tasks.loader import load

SHOWN_LINES = 40


class WatchedEnv(CodingEnv):
    """An environment that prints each step, if ``shown``. ``said`` is what the model wrote for the coming step."""

    shown = False
    said = ""

    def step(self, action: Mapping[str, Any] | Malformed) -> StepResult:
        result = super().step(action)
        observation, _, terminated, truncated, info = result
        if self.shown:
            _print_step(info["turn"], self.said or action, observation["text"], terminated or truncated)
        self.said = ""  # shown once: further steps of the same turn show their own calls
        return result


class WatchedPolicy:
    """A policy whose texts are told to ``env`` before they are acted upon."""

    def __init__(self, policy: Policy, chat: ChatFormat, env: WatchedEnv) -> None:
        self._policy = policy
        self._chat = chat
        self._env = env

    @property
    def version(self) -> int:
        return self._policy.version

    def generate(self, prompts: Sequence[Sequence[int]], params: SamplingParams) -> list[Completion]:
        completions = self._policy.generate(prompts, params)
        self._env.said = self._chat.decode(completions[0].ids).strip() or "(nothing)"
        return completions

    def close(self) -> None:
        """The policy belongs to the caller."""


def run(
    task: str,
    *,
    agent: str,
    agent_options: Sequence[str],
    model: str | None,
    sandbox: str,
    seed: int,
    turns: int | None,
    max_tokens: int,
    temperature: float,
    as_json: bool,
) -> int:
    """Play one episode. Exit code 0 if it was solved, 1 if it was not or could not be scored."""
    tasks = load(task)
    chosen = tasks.ids[random.Random(seed).randrange(len(tasks))]
    with (
        player(agent, model, slots=1, given=agent_options) as who,
        closing(WatchedEnv(tasks, sandbox=sandbox, max_turns=turns, mounts=who.mounts)) as env,
    ):
        policy, alone = who.policy, isinstance(who.agent, HarnessAgent)
        if not as_json:
            _print_task(chosen, tasks[chosen].instruction)
            env.shown = not alone
            if policy and who.format and not alone:
                policy = WatchedPolicy(policy, who.format, env)
        sampling = SamplingParams(max_tokens=max_tokens, temperature=temperature)
        with err.status(f"{who.agent.name} is at work …") if alone else nullcontext():
            episode = who.agent.run(
                env, policy, task=chosen, seed=seed, sampling=sampling, episode=f"{chosen}#{seed}", group=chosen
            )
        if alone and not as_json:
            for step in episode.steps:
                _print_step(step.turn + 1, step.text.strip() or "(nothing)", step.observation, over=False)
    if episode.status == "cancelled":
        raise KeyboardInterrupt
    if as_json:
        print_json(_plain(episode))
    else:
        _print_end(episode)
    return 0 if (episode.verdict or {}).get("resolved") else 1


def _plain(episode: Episode) -> dict[str, Any]:
    """The record without its token ids, which ``forkgym eval`` keeps."""
    values = asdict(episode)
    del values["segments"]
    return values


def _print_task(task: str, instruction: str) -> None:
    out.print(Panel(Text(instruction.strip()), title=Text(task, "bold"), title_align="left", border_style="cyan"))


def _print_step(turn: int, done: str | Mapping[str, Any] | Malformed, observation: str, over: bool) -> None:
    parts = [_done(done)]
    if observation and not over:
        parts.append(Text(_clip(observation), "dim"))
    out.print(Panel(Group(*parts), title=f"turn {turn}", title_align="left", border_style="dim"))


def _done(done: str | Mapping[str, Any] | Malformed) -> Syntax | Text:
    """What the agent wrote or did."""
    if isinstance(done, str):
        return Text(_clip(done))
    if isinstance(done, Malformed):
        return Text("no valid action", "red")
    arguments = dict(done["arguments"])
    if set(arguments) == {"command"} and done["tool"] == "bash":
        return Syntax(arguments["command"], "bash", background_color="default", word_wrap=True)
    return Text.assemble((done["tool"], "bold"), " ", ", ".join(f"{k}={v!r}" for k, v in arguments.items()))


def _clip(text: str) -> str:
    lines = text.rstrip("\n").split("\n")
    if len(lines) <= SHOWN_LINES:
        return "\n".join(lines)
    return "\n".join([*lines[:SHOWN_LINES], f"… {len(lines) - SHOWN_LINES} more lines"])


def _print_end(episode: Episode) -> None:
    verdict = episode.verdict or {}
    for finding in verdict.get("findings", ()):
        mark = Text("✓ ", "green") if finding["passed"] else Text("✗ ", "red")
        out.print(Text.assemble(mark, finding["id"], "  ", (_clip(finding["message"]), "dim")))
    turns = f"{len(episode.steps)} turn{'' if len(episode.steps) == 1 else 's'}"
    if episode.status == "failed":
        out.print(Text(f"not scored: {episode.reason} failed. {episode.detail}", "yellow"))
    elif verdict.get("resolved"):
        out.print(Text(f"solved in {turns}, reward {episode.reward:g}", "bold green"))
    else:
        limit = f", out of {episode.reason}" if episode.status == "truncated" else ""
        out.print(Text(f"not solved in {turns}{limit}, reward {episode.reward:g}", "bold red"))
