"""Episodes on disk: one JSON line each, append-only, exact.

A line is written whole by one ``write`` to a file opened for appending, so a crash can only tear the last line. Floats
are written with ``repr`` digits and come back bit for bit.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import threading
from dataclasses import asdict, dataclass, field, fields
from os import PathLike
from pathlib import Path
from typing import Any, cast

from pydantic import TypeAdapter, ValidationError

from forkgym.agents.base import Episode, Segment
from forkgym.errors import ConfigError

SCHEMA_VERSION = 2
READ_VERSIONS = (1, 2)
"""Version 1 knows no submission, trees, endings and permanent failures; they are read as absent."""
_EPISODE = TypeAdapter(Episode)
_FIELDS = {f.name for f in fields(Episode)}


@dataclass(frozen=True)
class EpisodeLog:
    """What a file holds. ``dropped`` counts torn last lines (0 or 1)."""

    episodes: list[Episode] = field(default_factory=list[Episode])
    dropped: int = 0


def check_segment(segment: Segment, where: str) -> None:
    """Raise ``ValueError`` unless the segment can be trained on: equal lengths, and a finite log-probability ≤ 0, a
    version and a turn for each sampled token, none where nothing was sampled."""
    lengths = {f.name: len(getattr(segment, f.name)) for f in fields(segment)}
    if len(set(lengths.values())) != 1:
        raise ValueError(f"{where}: lists of unequal length: {lengths}")
    for i, sampled in enumerate(segment.sampled):
        logprob, version = segment.logprobs[i], segment.version[i]
        if sampled and not (math.isfinite(logprob) and logprob <= 1e-3 and version >= 0):
            raise ValueError(f"{where}: sampled token {i} has logprob {logprob!r} and version {version}")
        if not sampled and (logprob, version) != (0.0, -1):
            raise ValueError(f"{where}: token {i} was not sampled but has logprob {logprob!r} and version {version}")


def check_episode(episode: Episode) -> None:
    """Raise ``ValueError`` unless the record is consistent: see ``check_segment``; no reward on a failed or cancelled
    episode; a finite reward otherwise; sampled tokens for every step that a policy took."""
    where = f"episode {episode.id!r}"
    for i, segment in enumerate(episode.segments):
        check_segment(segment, f"{where} segment {i}")
    if episode.reward is not None and episode.status in ("failed", "cancelled"):
        raise ValueError(f"{where}: {episode.status}({episode.reason}) with reward {episode.reward!r}")
    if episode.reward is not None and not math.isfinite(episode.reward):
        raise ValueError(f"{where}: reward {episode.reward!r}")
    if episode.segments:
        sampled = {t for s in episode.segments for t, was in zip(s.turn, s.sampled, strict=True) if was}
        missing = sorted({step.turn for step in episode.steps} - sampled)
        if missing:
            raise ValueError(f"{where}: turns {missing} have text but no sampled token ids")


def encode_episode(episode: Episode) -> str:
    """One line of JSON, without the newline. Raises ``ValueError`` for an inconsistent record."""
    check_episode(episode)
    row = {"schema_version": SCHEMA_VERSION, **asdict(episode)}
    return json.dumps(row, separators=(",", ":"), allow_nan=False)


def decode_episode(line: str | bytes, where: str = "record") -> Episode:
    """The episode of one line. Raises ``ConfigError`` naming ``where`` and what is wrong."""
    try:
        row: Any = json.loads(line)
    except ValueError as error:
        raise ConfigError(f"{where}: not JSON: {error}") from error
    if not isinstance(row, dict) or "schema_version" not in row:
        raise ConfigError(f"{where}: not an episode record (no schema_version)")
    values = cast(dict[str, Any], row)
    version = values.pop("schema_version")
    if version not in READ_VERSIONS:
        known = " and ".join(map(str, READ_VERSIONS))
        raise ConfigError(f"{where}: schema version {version!r}; this ForkGym reads versions {known}. Upgrade forkgym")
    unknown = sorted(set(values) - _FIELDS)
    if unknown:
        raise ConfigError(f"{where}: unknown keys {', '.join(unknown)}")
    try:
        episode = _EPISODE.validate_python(values)
        check_episode(episode)
    except (ValidationError, ValueError) as error:
        raise ConfigError(f"{where}: {error}") from error
    return episode


class EpisodeWriter:
    """Appends episodes to one file, from any thread. A context manager.

    Opening repairs the file: a torn last line is moved to ``<name>.torn`` and counted in ``dropped``. One writer per
    file: a second one, in any process, is refused. ``sync`` also waits for the disk after each line.
    """

    def __init__(self, path: str | PathLike[str], *, sync: bool = False) -> None:
        self.path = Path(path)
        self.sync = sync
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.dropped = self._repair()
        except BlockingIOError as error:
            os.close(self._fd)
            raise ConfigError(f"{self.path} is being written by another run; choose another folder") from error
        except BaseException:
            os.close(self._fd)
            raise

    def write(self, episode: Episode) -> None:
        """Append one episode. Raises ``ValueError`` for an inconsistent record, ``OSError`` for a full disk; nothing is
        written then."""
        data = memoryview(encode_episode(episode).encode() + b"\n")
        with self._lock:
            before = os.fstat(self._fd).st_size
            try:
                while data:
                    data = data[os.write(self._fd, data) :]
            except OSError:
                os.ftruncate(self._fd, before)  # half a line in the middle would make the file unreadable
                raise
            if self.sync:
                os.fsync(self._fd)

    def close(self) -> None:
        """Close the file. Idempotent."""
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1

    def __enter__(self) -> EpisodeWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _repair(self) -> int:
        data = self.path.read_bytes()
        tail = data[data.rfind(b"\n") + 1 :]
        if not tail:
            return 0
        if _whole(tail):
            os.write(self._fd, b"\n")
            return 0
        with open(f"{self.path}.torn", "ab") as torn:
            torn.write(tail + b"\n")
        os.ftruncate(self._fd, len(data) - len(tail))
        return 1


def read_episodes(path: str | PathLike[str]) -> EpisodeLog:
    """All episodes of a file, in order. A torn last line is dropped and counted.

    Raises ``ConfigError`` with file and line for anything else that is wrong.
    """
    try:
        lines = Path(path).read_bytes().split(b"\n")
    except OSError as error:
        raise ConfigError(f"cannot read episodes from {path}: {error.strerror}") from error
    tail = lines.pop()
    torn = bool(tail) and not _whole(tail)
    if tail and not torn:
        lines.append(tail)
    episodes = [decode_episode(line, f"{path} line {n}") for n, line in enumerate(lines, 1)]
    return EpisodeLog(episodes, int(torn))


def _whole(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True
