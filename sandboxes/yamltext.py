"""YAML that remembers where each key stood, so that an error can name the line. Read by this room and those above."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from forkgym.errors import ForkGymError

Location = tuple[int | str, ...]
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Document:
    """Parsed values, and the line (from 1) on which each location begins: ``("grading", "timeout") -> 7``."""

    name: str
    data: Any
    lines: dict[Location, int]
    kind: type[ForkGymError]

    def error(self, location: Location, message: str) -> ForkGymError:
        """An error of ``kind`` with file, line and key; a location that does not exist points to its nearest parent."""
        known = location
        while known and known not in self.lines:
            known = known[:-1]
        key = ".".join(str(part) for part in location)
        return self.kind(f"{self.name}:{self.lines.get(known, 1)}: {key + ': ' if key else ''}{message}")


def parse(text: str, name: str, kind: type[ForkGymError]) -> Document:
    """Read one YAML document. Raises an error of this ``kind`` for wrong syntax, repeated keys and aliases."""
    loader = _Loader(text)
    try:
        root = loader.get_single_node()
        data = None if root is None else loader.construct_document(root)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise kind(f"{name}:{line}: not valid YAML: {error.problem or error.context}") from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise kind(f"{name}:1: not valid YAML: {error}") from error
    finally:
        loader.dispose()
    return Document(name, data, {} if root is None else dict(_lines(root, (), name, set(), kind)), kind)


def _lines(
    node: yaml.Node, at: Location, name: str, met: set[int], kind: type[ForkGymError]
) -> Iterator[tuple[Location, int]]:
    if id(node) in met:
        raise kind(f"{name}:{node.start_mark.line + 1}: write the value out; aliases (*name) are not read")
    met.add(id(node))
    yield at, node.start_mark.line + 1
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield from _lines(item, (*at, index), name, met, kind)
    elif isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                raise kind(f"{name}:{line}: a key must be plain text")
            if key.value in seen:
                raise kind(f"{name}:{line}: {key.value}: this key stands here twice")
            seen.add(key.value)
            yield from _lines(value, (*at, key.value), name, met, kind)
            yield (*at, key.value), line
