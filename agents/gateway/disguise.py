"""The same harness in other words: tools and their arguments renamed and reordered, the system prompt framed anew.

A model that is trained in one harness learns its names by heart. A disguise, drawn by a seed for a whole episode, shows
it others; the harness only ever sees its own. It can be undone exactly: every name that the model may write stands for
one name of the harness, and the other way round.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, cast

from forkgym.agents.base import Call, Turn
from forkgym.agents.gateway.wire import Message, Request, Tool

# What a name becomes that the harness knows and the model was not shown: the harness must not take it.
HIDDEN = "no_such_"
_WORDS = {
    "bash": ("shell", "terminal", "run", "console"),
    "shell": ("bash", "terminal", "run", "console"),
    "read": ("view", "open", "show"),
    "view": ("read", "open", "show"),
    "write": ("save", "put", "create"),
    "create": ("write", "make", "new"),
    "edit": ("change", "modify", "patch"),
    "replace": ("substitute", "swap"),
    "search": ("find", "lookup"),
    "grep": ("search", "find", "match"),
    "glob": ("find", "list", "match"),
    "list": ("ls", "show", "enumerate"),
    "task": ("job", "work"),
    "command": ("cmd", "line", "script"),
    "path": ("file", "location", "target"),
    "pattern": ("query", "regex", "expression"),
    "content": ("text", "body", "data"),
    "description": ("summary", "purpose", "note"),
    "submit": ("finish", "done", "complete"),
    "timeout": ("limit", "deadline"),
}
_FRAMES = (
    ("", ""),
    ("# Instructions\n\n", ""),
    ("You are given tools and a task.\n\n", ""),
    ("", "\n\nUse the tools by the names they have here."),
    ("<instructions>\n", "\n</instructions>"),
    ("Read this first.\n\n", "\n\nNow begin."),
)
_STYLES: tuple[Callable[[list[str]], str], ...] = (
    "_".join,
    lambda words: words[0] + "".join(word.capitalize() for word in words[1:]),
    lambda words: "".join(word.capitalize() for word in words),
)
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


class Names:
    """Other names for those that were learnt, one to one. All others stand for themselves."""

    def __init__(self, seed: str, style: Callable[[list[str]], str]) -> None:
        self._seed, self._style = seed, style
        self.shown: dict[str, str] = {}
        self._known: dict[str, str] = {}

    def learn(self, names: Iterable[str]) -> None:
        """Find other names; what was learnt before keeps the one it has. One that begins with ``HIDDEN`` stays."""
        for name in sorted(set(names) - set(self.shown)):
            if name.startswith(HIDDEN):
                continue
            wanted = self._other(name)
            shown = next(one for one in (wanted, *(f"{wanted}{n}" for n in range(2, 1000))) if one not in self._known)
            self.shown[name], self._known[shown] = shown, name

    def show(self, name: str) -> str:
        """What the model is shown for a name of the harness."""
        if name in self.shown:
            return self.shown[name]
        written = name.removeprefix(HIDDEN)
        return written if written != name and self._is_hidden(written) else name

    def back(self, name: str) -> str:
        """What the harness is shown for a name that the model wrote."""
        if name in self._known:
            return self._known[name]
        return HIDDEN + name if self._is_hidden(name) else name

    def _is_hidden(self, written: str) -> bool:
        """True if the model wrote a name of the harness that it was not shown, or what such a name becomes."""
        while written not in self._known:
            if written in self.shown:
                return True
            if not written.startswith(HIDDEN):
                return False
            written = written.removeprefix(HIDDEN)
        return False

    def _other(self, name: str) -> str:
        """``name`` in other words and another spelling; one that is not made of words stays."""
        words = [word.lower() for word in _PART.findall(name)]
        draw = random.Random(f"{self._seed}/{name}")
        return self._style([draw.choice(_WORDS[word]) if word in _WORDS else word for word in words]) if words else name


class Disguise:
    """One disguise, by ``seed``. It is the same for every request of an episode, so streams still go on.

    Not safe for use from several threads.
    """

    def __init__(self, seed: int) -> None:
        self._seed = f"disguise/{seed}"
        draw = random.Random(self._seed)
        self._style = draw.choice(_STYLES)
        self._before, self._after = draw.choice(_FRAMES)
        self._tools = Names(self._seed, self._style)
        self._arguments: dict[str, Names] = {}

    def request(self, request: Request) -> Request:
        """The request as the model is to see it."""
        for tool in request.tools:
            defined = tool["function"]
            self._tools.learn([defined["name"]])
            names = self._arguments.setdefault(defined["name"], Names(self._seed, self._style))
            names.learn(_properties(defined["parameters"]))
        tools = sorted(map(self._tool, request.tools), key=self._rank)
        return replace(request, messages=[self.message(message) for message in request.messages], tools=tools)

    def message(self, message: Message) -> Message:
        """One message of the harness as the model is to see it."""
        if message["role"] == "system":
            return {**message, "content": f"{self._before}{self._mentions(message['content'])}{self._after}"}
        if "tool_calls" not in message:
            return message
        calls: list[Mapping[str, Any]] = []
        for call in message["tool_calls"]:
            name, arguments = call["function"]["name"], call["function"]["arguments"]
            if name in self._arguments:
                arguments = _renamed(arguments, self._arguments[name].show)
            calls.append({**call, "function": {"name": self._tools.show(name), "arguments": arguments}})
        return {**message, "tool_calls": calls}

    def turn(self, turn: Turn) -> Turn:
        """What the model said, for the harness."""
        calls: list[Call] = []
        for call in turn.calls:
            name, arguments = self._tools.back(call.name), call.arguments
            if name in self._arguments:
                arguments = _renamed(arguments, self._arguments[name].back)
            calls.append(Call(name, arguments))
        return replace(turn, calls=tuple(calls))

    def _rank(self, tool: Tool) -> float:
        return random.Random(f"{self._seed}/order/{tool['function']['name']}").random()

    def _tool(self, tool: Tool) -> Tool:
        defined = dict(tool["function"])
        names = self._arguments[defined["name"]]
        schema = dict(defined["parameters"])
        if properties := _properties(schema):
            schema["properties"] = {names.show(key): value for key, value in properties.items()}
        if isinstance(schema.get("required"), list):
            schema["required"] = [names.show(key) if isinstance(key, str) else key for key in schema["required"]]
        defined |= {"name": self._tools.show(defined["name"]), "parameters": schema}
        if "description" in defined:
            defined["description"] = self._mentions(defined["description"])
        return {**tool, "function": defined}

    def _mentions(self, text: str) -> str:
        """``text`` with the names of tools replaced: quoted ones, and those that cannot be words of a sentence."""
        shown = self._tools.shown
        marked = "|".join(re.escape(name) for name in shown if re.search(r"_|[a-z][A-Z]", name))
        plain = "|".join(map(re.escape, shown))
        ways = [rf"(?<=[`'\"])(?:{plain})(?=[`'\"])"] if plain else []
        ways += [rf"(?<![\w.-])(?:{marked})(?![\w-])"] if marked else []
        return re.sub("|".join(ways), lambda found: shown[found[0]], text) if ways else text


def _properties(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    found = schema.get("properties")
    return cast(dict[str, Any], found) if isinstance(found, dict) else {}


def _renamed(arguments: str, rename: Callable[[str], str]) -> str:
    """Arguments with other keys; what is no object, or keeps its keys, stays as it is, letter by letter."""
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    if not isinstance(value, dict):
        return arguments
    found = cast(dict[str, Any], value)
    new = {rename(key): one for key, one in found.items()}
    return arguments if list(new) == list(found) else json.dumps(new)
