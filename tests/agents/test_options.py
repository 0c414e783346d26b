"""Options of agents, as recipes and command lines write them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from forkgym.agents.formats.chatml import ChatML
from forkgym.agents.harnesses.host import HostAgent
from forkgym.agents.loops.oracle import OracleAgent
from forkgym.agents.loops.tools import ToolsAgent
from forkgym.agents.options import from_words, typed
from forkgym.agents.registry import make_agent
from forkgym.agents.tokenizers import ByteTokenizer
from forkgym.errors import ConfigError


def words(make: Any, *given: str) -> dict[str, Any]:
    return typed("it", make, from_words(given, make))


def test_words_become_what_the_agent_takes() -> None:
    assert words(ToolsAgent, "compact_at=500", "system=yes", "privileged=true", "prompt=null") == {
        "compact_at": 500, "system": "yes", "privileged": True, "prompt": None
    }  # fmt: skip
    assert words(ToolsAgent, "examples=[{role: user, content: a=b}]") == {
        "examples": [{"role": "user", "content": "a=b"}]
    }
    assert words(ToolsAgent, "system=a=b") == {"system": "a=b"}
    assert words(HostAgent, "stall=2", "include=[main]") == {"stall": 2.0, "include": ["main"]}


@pytest.mark.parametrize(
    ("make", "word", "says"),
    [
        (ToolsAgent, "compact_at", "write key=value"),
        (ToolsAgent, "=3", "write key=value"),
        (ToolsAgent, "compact_at=many", "compact_at: Input should be a valid integer"),
        (ToolsAgent, "compact_at=[", "no YAML"),
        (ToolsAgent, "compactat=3", "unknown option 'compactat'; did you mean 'compact_at'"),
        (ToolsAgent, "format=chatml", "format is no option"),
        (ToolsAgent, "name=x", "name is no option"),
        (ToolsAgent, "examples=main", "examples: "),
        (HostAgent, "stall=soon", "stall: Input should be a valid number"),
        (HostAgent, "include=[x]", "include: Input should be 'main'"),
        (HostAgent, "stal=1", "unknown option 'stal'"),
        (OracleAgent, "prompt=x", "Known: none"),
    ],
)
def test_what_is_wrong_is_said(make: Any, word: str, says: str) -> None:
    with pytest.raises(ConfigError) as error:
        words(make, word)
    assert says in str(error.value)


def test_given_twice() -> None:
    with pytest.raises(ConfigError, match="twice"):
        words(ToolsAgent, "compact_at=1", "compact_at=2")


def test_recipes_are_checked_too() -> None:
    chat = ChatML(ByteTokenizer())
    with pytest.raises(ConfigError, match="compact_at: Input should be a valid integer"):
        make_agent({"name": "bash", "compact_at": "soon"}, format=chat)
    with pytest.raises(ConfigError, match="unknown option 'promt'; did you mean 'prompt'"):
        make_agent({"name": "tools", "promt": "careful-tools"}, format=chat)
    assert make_agent({"name": "tools", "prompt": "careful-tools"}, format=chat).name == "tools"


def test_a_function_checks_what_it_is_given_itself() -> None:
    def make(size: int, names: Sequence[str] = (), **more: Any) -> dict[str, Any]:
        return {"size": size, "names": names, **more}

    assert words(make, "size=3", "names=[a]", "other=b") == {"size": 3, "names": ["a"], "other": "b"}
