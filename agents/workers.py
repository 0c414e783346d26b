"""A worker in this process: it keeps one environment, and replaces it after a failure."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from typing import Any, cast

from forkgym.agents.base import Completion, Episode, Policy, SamplingParams
from forkgym.agents.crew import Outcome, Parts, Ticket
from forkgym.agents.errors import HarnessError
from forkgym.agents.loops.recording import cancel, fail
from forkgym.envs.core import CodingEnv
from forkgym.envs.errors import EpisodeOverError
from forkgym.errors import ConfigError
from forkgym.sandboxes.errors import SandboxError


class Threads:
    """The workplace in this process."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def worker(self) -> ThreadWorker:
        return ThreadWorker(self._parts)

    def close(self) -> None:
        """Nothing is shared."""


class ThreadWorker:
    """See ``forkgym.agents.crew.Worker``. A halted ticket loses its sandbox, and its policy says nothing more."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._lock = threading.Lock()
        self._env: CodingEnv | None = None
        self._ticket: Ticket | None = None
        self._halted = threading.Event()
        self._why = ""

    def play(self, ticket: Ticket) -> Outcome:
        """Play one ticket; what goes wrong is recorded in its episode, but for a ``ConfigError``."""
        with self._lock:
            self._ticket, self._halted, self._why = ticket, threading.Event(), ""
        outcome = self._outcome(ticket)
        with self._lock:
            self._ticket = None
        if isinstance(outcome, BaseException) or outcome.status == "failed":
            self._drop()
        return outcome

    def halt(self, ticket: Ticket, why: str) -> None:
        """End the commands that run now; the environment is closed by this worker's own thread, between steps."""
        with self._lock:
            if self._ticket != ticket:
                return
            self._why = why
            self._halted.set()
            env = self._env
        if env is not None:
            with contextlib.suppress(SandboxError, EpisodeOverError):
                env.box.close()

    def close(self) -> None:
        self._drop()

    def _outcome(self, ticket: Ticket) -> Outcome:
        try:
            episode = self._attempt(ticket)
        except ConfigError as error:
            return error  # raised again in the caller's thread
        except Exception as error:
            episode = self._parts.blank(ticket)
            fail(episode, error)
        except BaseException as error:
            return error
        if self._halted.is_set() and episode.status in ("failed", "cancelled"):
            cancel(episode, f"{self._why}: {episode.detail}")  # its sandbox was closed under it
        return episode

    def _attempt(self, ticket: Ticket) -> Episode:
        if self._env is None:
            env = self._parts.env_factory()
            with self._lock:
                self._env = env
        policy = None if self._parts.policy is None else Haltable(self._parts.policy, self._halted)
        episode = cast(object, self._parts.attempt(self._env, policy, ticket))  # agents come from anywhere
        if not isinstance(episode, Episode):
            raise HarnessError(f"the agent returned {type(episode).__name__}, not an Episode")
        return episode

    def _drop(self) -> None:
        with self._lock:
            env, self._env = self._env, None
        if env is not None:
            with contextlib.suppress(Exception):  # what cannot be removed now, the next gc reaps; the worker goes on
                env.close()


class Haltable:
    """The policy, until told to halt: then every completion is empty and ``cancelled``."""

    def __init__(self, policy: Policy, halted: threading.Event) -> None:
        self._policy = policy
        self._halted = halted

    @property
    def version(self) -> int:
        return self._policy.version

    def generate(self, prompts: Sequence[Sequence[int]], params: SamplingParams) -> list[Completion]:
        if self._halted.is_set():
            return [Completion((), (), "cancelled", self.version) for _ in prompts]
        return self._policy.generate(prompts, params)

    def close(self) -> None:
        """The policy belongs to the caller."""

    def __getattr__(self, name: str) -> Any:
        """Whatever else this policy can do."""
        return getattr(self._policy, name)
