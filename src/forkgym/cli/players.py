"""From ``--agent`` or ``--harness``, and ``--policy``, to something that plays."""

from __future__ import annotations

import inspect
import json
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from forkgym.agents.base import Agent, ChatFormat, Policy
from forkgym.agents.harnesses import store
from forkgym.agents.harnesses.base import Harness
from forkgym.agents.harnesses.registry import HARNESSES, HOST
from forkgym.agents.options import from_words, typed
from forkgym.agents.policies.endpoint import Endpoint
from forkgym.agents.policies.opening import ENGINES, Opened, open_policy, parse_spec
from forkgym.agents.registry import AGENTS, make_agent, make_format
from forkgym.cli.output import err
from forkgym.errors import ConfigError, MissingExtraError
from forkgym.registry import resolve
from forkgym.sandboxes.base import Mount

WITHOUT_MODEL = ("oracle", "nop", "random")
CONTEXT = 2048


@dataclass(frozen=True)
class Player:
    """An agent with its policy and chat format, if it has them."""

    agent: Agent
    policy: Policy | None = None
    format: ChatFormat | None = None

    @property
    def mounts(self) -> tuple[Mount, ...]:
        """What the sandboxes that it plays in must show."""
        return getattr(self.agent, "mounts", ())


@dataclass(frozen=True)
class Loaded:
    """An open policy, and how its agent was set up in training (empty if it does not come from a run)."""

    opened: Opened
    agent: Mapping[str, Any]


@contextmanager
def player(agent: str, spec: str | None, slots: int = 8, given: Sequence[str] = ()) -> Generator[Player]:
    """The agent ``agent``, with a policy if it needs one. ``given`` are its options, ``key=value`` each.

    Raises ``ConfigError`` before anything is loaded.
    """
    if agent in AGENTS and agent in WITHOUT_MODEL:
        if spec is not None:
            raise ConfigError(f"agent {agent!r} uses no model; leave --policy out or choose --agent bash")
        yield Player(make_agent({"name": agent, **_options(agent, given)}))
        return
    if agent == "demonstration":
        raise ConfigError("agent 'demonstration' plays for training only; use oracle to check tasks")
    if agent in ("harness", "host-harness"):
        raise ConfigError("name the agent program: --harness mini-swe-agent; `forkgym harness list` shows all")
    harness = _harness(agent)
    if harness is None:
        resolve("agent", agent, {**HARNESSES, **AGENTS})
    kind = agent if harness is None else "host-harness" if agent.endswith(HOST) else "harness"
    own = _options(kind, given)
    if spec is None:
        raise ConfigError(f"agent {agent!r} needs a model: --policy smollm2-135m, a model's folder, or a run's folder")
    if harness is not None:
        store.require(harness)
        with loaded(spec, slots) as found:
            chat = _format_of(found)
            yield Player(make_agent({"name": kind, **own}, format=chat, harness=harness), found.opened.policy, chat)
        return
    with loaded(spec, slots) as found:
        takes = inspect.signature(resolve("agent", agent, AGENTS)).parameters.values()
        takes_ids = any(one.name == "format" or one.kind is one.VAR_KEYWORD for one in takes)
        chat = make_format(found.agent.get("format", "auto"), found.opened.tokenizer) if takes_ids else None
        if chat is not None:
            err.print(f"Chat format: {chat.name}", highlight=False)
        trained_with = found.agent.get("name") == agent
        options: Mapping[str, Any] = found.agent.get("options", {}) if trained_with else {}
        parts = {"format": chat} if takes_ids else {}
        yield Player(make_agent({"name": agent, **options, **own}, **parts), found.opened.policy, chat)


def _options(agent: str, given: Sequence[str]) -> dict[str, Any]:
    """The options of an agent as it takes them, before a model is loaded."""
    make = resolve("agent", agent, AGENTS)
    return typed(agent, make, from_words(given, make))


def _harness(name: str) -> Harness | None:
    """The harness of this name, which may end in ``@host``; ``None`` if it is the name of something else."""
    name = name.removesuffix(HOST)
    if name in AGENTS or (name not in HARNESSES and ":" not in name):
        return None
    found = resolve("harness", name, HARNESSES)
    return found if isinstance(found, Harness) else None


def _format_of(found: Loaded) -> ChatFormat | None:
    """The model's chat format; ``None`` for a server that gives no exact tokens, of which only text is known."""
    policy = found.opened.policy
    if isinstance(policy, Endpoint) and (refusal := policy.refusal()):
        err.print(f"No tokens will be kept, so this cannot be trained on: {refusal}", style="yellow", soft_wrap=True)
        return None
    return make_format(found.agent.get("format", "auto"), found.opened.tokenizer)


@contextmanager
def loaded(spec: str, slots: int) -> Generator[Loaded]:
    """What ``--policy`` names: as ``open_policy`` takes it, or the folder of a run or checkpoint."""
    kind, where, options = parse_spec(spec)
    folder = Path(where)
    is_run = kind == "hf" and folder.is_dir() and not (folder / "config.json").is_file()
    with err.status("Loading the model (the first time takes half a minute) …"):
        found = _open_run(folder, slots, options) if is_run else Loaded(open_policy(spec, slots=slots), {})
    with found.opened:
        yield found


def _open_run(folder: Path, slots: int, options: Mapping[str, Any]) -> Loaded:
    """The weights of a run's newest checkpoint, and the agent they were trained with."""
    checkpoints = engine("checkpoint")
    found = checkpoints.find(folder)
    recipe = json.loads((found / "state.json").read_text()).get("recipe", {})
    if "model" not in recipe:
        raise ConfigError(f"checkpoint {found} does not say which model it is of; name a run of `forkgym train`")
    if options:
        raise ConfigError(f"a run's folder takes no options, it has its own: leave out {', '.join(options)}")

    def adapt(model: Any) -> None:
        checkpoints.load_weights(found, model)

    opened: Opened = resolve("policy engine", "hf", ENGINES)(
        recipe["model"]["name"],
        adapt,
        slots=slots,
        dtype=recipe["model"]["dtype"],
        seed=recipe["seed"],
        context=recipe.get("sampling", {}).get("context", CONTEXT),
    )
    return Loaded(opened, recipe.get("agent", {}))


def engine(module: str) -> Any:
    """A module of the trainers that needs torch. Raises ``MissingExtraError`` without it."""
    try:
        return import_module(f"forkgym.trainers.{module}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("forkgym"):
            raise
        raise MissingExtraError(f"a model needs the package {error.name!r}: pip install 'forkgym[train]'") from error
