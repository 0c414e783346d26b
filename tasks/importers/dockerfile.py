"""The part of a Dockerfile that can be followed without Docker, over an image of ours that stands in for its base.

WORKDIR, ENV, COPY and ADD of plain files below the working directory, RUN (as a set-up command, without a network), and
USER root. What only matters to who starts a container (CMD, ENTRYPOINT, EXPOSE, LABEL, …) has no effect here either.
Anything else is refused by line.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from forkgym.tasks.errors import TaskFormatError

_NO_EFFECT = ("CMD", "ENTRYPOINT", "EXPOSE", "LABEL", "MAINTAINER", "STOPSIGNAL", "HEALTHCHECK", "VOLUME")


@dataclass
class Plan:
    """What the Dockerfile asks for. ``files`` maps paths below ``workdir`` to paths in the build context."""

    bases: list[str] = field(default_factory=list[str])
    workdir: str = "/"
    env: dict[str, str] = field(default_factory=dict[str, str])
    files: dict[str, str] = field(default_factory=dict[str, str])
    setup: list[str] = field(default_factory=list[str])


def bases(text: str) -> list[str]:
    """The images that must be there for a build, in order; stages of the file itself and ``scratch`` are none."""
    found: list[str] = []
    stages: set[str] = {"scratch"}
    for _, word, rest in instructions(text):
        if word == "FROM":
            words = [part for part in rest.split() if not part.startswith("--")]
            found += [words[0]] if words and words[0] not in stages else []
            stages |= {words[2]} if len(words) == 3 else set()
        elif word == "COPY" and (match := re.match(r"--from=(\S+)", rest)):
            found += [match[1]] if match[1] not in stages and not match[1].isdigit() else []
    return list(dict.fromkeys(found))


def workdir(text: str) -> str | None:
    """The last WORKDIR, resolved against those before it; ``None`` if the file does not say."""
    place: PurePosixPath | None = None
    for _, word, rest in instructions(text):
        if word == "WORKDIR":
            place = (place or PurePosixPath("/")) / rest.strip().strip("\"'")
    return None if place is None else str(place)


def follow(text: str, name: str, context: Mapping[str, bytes], target: str) -> Plan:
    """The plan for a task that works in ``target``. ``context`` maps paths beside the Dockerfile to their contents.

    Raises ``TaskFormatError`` naming ``name``, the line, and what cannot be followed.
    """
    plan = Plan()
    for line, word, rest in instructions(text):
        place = f"{name}:{line}: {word}"
        if word == "FROM":
            plan.bases.append(rest)
            if len(plan.bases) > 1:
                raise TaskFormatError(f"{place}: several stages need Docker; import without an image of ours")
        elif word == "WORKDIR":
            plan.workdir = str(PurePosixPath(plan.workdir) / rest.strip().strip("\"'"))
        elif word == "ENV":
            plan.env |= _environment(rest, place)
        elif word in ("COPY", "ADD"):
            _copy(plan, rest, place, context, target)
        elif word == "RUN":
            plan.setup.append(_command(rest, place, plan.workdir, target))
        elif word == "USER":
            if rest.strip() not in ("root", "0"):
                raise TaskFormatError(f"{place}: imported tasks run as root, not as {rest!r}")
        elif word not in _NO_EFFECT:
            raise TaskFormatError(f"{place}: only Docker can follow this; import without an image of ours")
    return plan


def instructions(text: str) -> Iterator[tuple[int, str, str]]:
    """(line, INSTRUCTION, the rest) with continued lines joined; comments are left out."""
    started, parts = 0, list[str]()
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        started = started or number
        parts.append(stripped.removesuffix("\\"))
        if not stripped.endswith("\\"):
            word, _, rest = " ".join(part.strip() for part in parts).partition(" ")
            yield started, word.upper(), rest.strip()
            started, parts = 0, []
    if parts:
        word, _, rest = " ".join(parts).partition(" ")
        yield started, word.upper(), rest.strip()


def _environment(rest: str, place: str) -> dict[str, str]:
    try:
        words = shlex.split(rest)
    except ValueError as error:
        raise TaskFormatError(f"{place}: {error}") from error
    if words and "=" not in words[0]:  # the old form, ENV NAME value
        return {words[0]: rest.partition(" ")[2].strip()}
    if wrong := [word for word in words if "=" not in word or "$" in word]:
        raise TaskFormatError(f"{place}: {wrong[0]!r} cannot be followed; write NAME=value without a variable in it")
    return dict(word.split("=", 1) for word in words)


def _command(rest: str, place: str, workdir: str, target: str) -> str:
    if rest.startswith("--") or "<<" in rest:
        raise TaskFormatError(f"{place}: mounts and here-documents need Docker; import without an image of ours")
    if rest.startswith("["):
        rest = shlex.join(_words(rest, place))
    return rest if workdir == target else f"mkdir -p {shlex.quote(workdir)} && cd {shlex.quote(workdir)} && {rest}"


def _words(rest: str, place: str) -> list[str]:
    if not rest.startswith("["):
        return rest.split()
    try:
        return [str(word) for word in json.loads(rest)]
    except ValueError as error:
        raise TaskFormatError(f"{place}: not a JSON list of words: {error}") from error


def _copy(plan: Plan, rest: str, place: str, context: Mapping[str, bytes], target: str) -> None:
    words = _words(rest, place)
    if any(word.startswith("--") for word in words) or "://" in rest or "<<" in rest or len(words) < 2:
        raise TaskFormatError(f"{place}: only plain files of the build context are copied here, not {rest!r}")
    *sources, end = words
    folder = str(PurePosixPath(plan.workdir) / end)
    for source in sources:
        pattern = source.removeprefix("./").rstrip("/")
        below = {path: path for path in context if pattern in ("", ".")}
        below |= {path: path[len(pattern) + 1 :] for path in context if path.startswith(pattern + "/")}
        single = [path for path in context if fnmatchcase(path, pattern) and path.count("/") == pattern.count("/")]
        if not below and not single:
            raise TaskFormatError(f"{place}: the build context has no {source!r}")
        into = end.endswith(("/", ".")) or len(sources) > 1 or len(single) > 1
        placed = {path: f"{folder}/{rest_}" for path, rest_ in below.items()}
        placed |= {path: f"{folder}/{PurePosixPath(path).name}" if into else folder for path in single}
        for path, absolute in placed.items():
            plan.files[_inside(str(PurePosixPath(absolute)), target, place)] = path


def _inside(path: str, target: str, place: str) -> str:
    relative = path.removeprefix(target.rstrip("/") + "/")
    if relative == path or ".." in path.split("/"):
        raise TaskFormatError(f"{place}: {path} lies outside of {target}; import without an image of ours")
    return relative
