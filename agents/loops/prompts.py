"""What an agent is told, as a file: YAML with ``$variables`` of the task, packaged here or anywhere else.

    system: You fix bugs in $workdir.          # null: no system message
    task: $instruction
    examples: [{role: user, content: ...}, {role: assistant, content: ...}]
    summarize: ...                             # asks for a summary, where the agent compacts
    resume: ...$summary...$observation...      # goes on from it

A dollar sign that begins none is written ``$$``. The variables are ``instruction``, ``task`` (its id), ``family``,
``workdir`` and ``tools``; ``summary`` and ``observation`` in ``resume`` only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any, cast

import yaml

from forkgym.envs.core import CodingEnv
from forkgym.errors import ConfigError
from forkgym.registry import unknown

VARIABLES = ("instruction", "task", "family", "workdir", "tools")
SUMMARIZE = (
    "The conversation is nearly full. Write down what you have found out, what you have changed, and what is left to "
    "do: you will go on with these notes alone."
)
RESUME = "Your notes so far:\n$summary\n\nThe last output:\n$observation"


@dataclass(frozen=True)
class Prompt:
    """The texts that an agent is given; see above."""

    system: str | None = None
    task: str = "$instruction"
    examples: Sequence[Mapping[str, Any]] = ()
    summarize: str = SUMMARIZE
    resume: str = RESUME

    def __post_init__(self) -> None:
        _check("system", self.system or "", VARIABLES)
        _check("task", self.task, VARIABLES)
        _check("summarize", self.summarize, VARIABLES)
        _check("resume", self.resume, (*VARIABLES, "summary", "observation"))

    def opening(self, values: Mapping[str, str]) -> list[Mapping[str, Any]]:
        """System message and examples, then the task."""
        system = [] if self.system is None else [{"role": "system", "content": fill(self.system, values)}]
        return [*system, *self.examples, {"role": "user", "content": fill(self.task, values)}]


def variables(env: CodingEnv, instruction: str) -> dict[str, str]:
    """The values of an episode's variables; ``instruction`` is what the environment says of its task."""
    tools = ", ".join(tool["function"]["name"] for tool in env.tools)
    task = env.task
    values = (instruction, task.id, task.family, task.workdir, tools)
    return dict(zip(VARIABLES, values, strict=True))


def fill(text: str, values: Mapping[str, str], **more: str) -> str:
    """``text`` with its variables replaced; a dollar sign within a value is only that."""
    return Template(text).substitute(values, **more)


def load_prompt(name: str) -> Prompt:
    """A packaged prompt by name, or one from a ``.yaml`` file. Raises ``ConfigError``."""
    folder = files("forkgym.agents") / "prompts"
    known = {entry.name.removesuffix(".yaml"): entry for entry in folder.iterdir() if entry.name.endswith(".yaml")}
    if name not in known and not Path(name).is_file():
        raise ConfigError(f"{unknown('prompt', name, list(known))}, or the path of a YAML file")
    try:
        given: Any = yaml.safe_load(known[name].read_text() if name in known else Path(name).read_text())
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigError(f"prompt {name!r} can't be read: {error}") from error
    if not isinstance(given, dict):
        raise ConfigError(f"prompt {name!r} is not a mapping of texts")
    return _built(name, cast("dict[Any, Any]", given))


def _built(name: str, given: dict[Any, Any]) -> Prompt:
    keys = [field.name for field in fields(Prompt)]
    for key, value in given.items():
        if key not in keys:
            raise ConfigError(f"prompt {name!r}: {unknown('key', key, keys)}")
        if key == "examples":
            _check_examples(name, value)
        elif not isinstance(value, str) and not (key == "system" and value is None):
            raise ConfigError(f"prompt {name!r}: {key} must be a text, not {value!r:.100}")
    try:
        return Prompt(**given)
    except ConfigError as error:
        raise ConfigError(f"prompt {name!r}: {error}") from error


def _check_examples(name: str, value: Any) -> None:
    entries = cast("list[Any]", value) if isinstance(value, list) else [None]
    if not all(isinstance(entry, dict) and "role" in entry for entry in entries):
        raise ConfigError(f"prompt {name!r}: examples must be a list of messages with role and content")


def _check(key: str, text: str, variables: Sequence[str]) -> None:
    template = Template(text)
    if not template.is_valid():
        raise ConfigError(f"{key}: a dollar sign that begins no variable is written $$")
    for variable in template.get_identifiers():
        if variable not in variables:
            raise ConfigError(f"{key}: {unknown('variable', variable, list(variables))}")
