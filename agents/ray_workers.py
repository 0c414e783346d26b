"""The same run on Ray: each worker is a process of its own, with its own environment and sandboxes, on any node.

A policy in the caller's process answers the workers through an actor, so its weights are where the trainer has them; or
each worker makes a policy of its own. A worker that dies fails its episode as ``harness``, which is retried elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import pickle
import shutil
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from forkgym.agents.base import Completion, Policy, SamplingParams
from forkgym.agents.crew import Outcome, Parts, Ticket
from forkgym.agents.errors import HarnessError, PolicyError
from forkgym.agents.loops.recording import cancel, fail
from forkgym.agents.workers import ThreadWorker
from forkgym.errors import ConfigError, ForkGymError
from forkgym.sandboxes import BACKENDS, backend
from forkgym.tasks import workspace

ray: Any = importlib.import_module("ray")

TAKE_SECONDS = 0.2
CLOSE_SECONDS = 10.0


class RayWorkers:
    """The workplace on Ray: ``collect(..., on="ray")``, or ``on=partial(RayWorkers, address="auto")``.

    Uses the Ray that is connected. Without one it connects to ``address`` (or ``RAY_ADDRESS``), else starts one on this
    machine; what it started, it ends. Nodes need ForkGym installed.

    - ``policy_factory``: each worker samples from a policy of its own, in place of the caller's. A policy that returns
      no token ids works only so.
    - ``cpus``: what a worker claims of Ray. Workers that the cluster has no room for would wait for ever.

    Raises ``ConfigError`` if environments or agents cannot be sent to other processes.
    """

    def __init__(
        self,
        parts: Parts,
        *,
        address: str | None = None,
        policy_factory: Callable[[], Policy] | None = None,
        cpus: float = 0.0,
    ) -> None:
        if policy_factory is not None and parts.policy is not None:
            raise ConfigError("give a policy or a policy_factory, not both")
        self.blank = parts.blank
        self._cpus = cpus
        self._factory = policy_factory
        try:
            self._parts = ray.cloudpickle.dumps((replace(parts, policy=None), policy_factory))
        except Exception as error:
            raise ConfigError(f"this run cannot be sent to the workers of Ray: {error}") from error
        self._folder = _connect(address)
        self._lock = threading.Lock()
        self._actors: dict[Any, tuple[str, int]] = {}
        self._dismissed: dict[str, list[int]] = defaultdict(list)
        self.closed = False
        self._desk = None if parts.policy is None else Desk(parts.policy)

    def worker(self) -> RayWorker:
        return RayWorker(self)

    def hire(self) -> Any:
        """A new worker process."""
        make = ray.remote(max_concurrency=4, num_cpus=self._cpus, scheduling_strategy="SPREAD")(RemoteWorker)
        actor = make.remote(self._parts, None if self._desk is None else self._desk.policy())
        node, process = ray.get(actor.whereabouts.remote())
        with self._lock:
            self._actors[actor] = (node, process)
        return actor

    def dismiss(self, actor: Any) -> None:
        """End a worker process."""
        with self._lock:
            node, process = self._actors.pop(actor, ("", 0))
            self._dismissed[node].append(process)
        ray.kill(actor)

    def close(self) -> None:
        """End what is left, and remove what the processes that were killed left on their nodes."""
        self.closed = True
        for actor in list(self._actors):  # they hang
            self.dismiss(actor)
        sweeps = [self._sweep(node, processes) for node, processes in self._dismissed.items() if node]
        if sweeps:
            ray.wait(sweeps, num_returns=len(sweeps), timeout=CLOSE_SECONDS)
        if self._desk is not None:
            self._desk.close()
        if self._folder is not None:
            ray.shutdown()
            shutil.rmtree(self._folder, ignore_errors=True)

    def _sweep(self, node: str, processes: list[int]) -> Any:
        there = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=True)
        return ray.remote(num_cpus=0, scheduling_strategy=there)(sweep).remote(processes)


class Connection:
    """Ray for several runs in a row: the one that is connected, or that of ``address``, or (``local``) one of its own.

    Raises ``ConfigError`` if none answers at ``address``, or this process is connected to the Ray of another one.
    """

    def __init__(self, address: str) -> None:
        self._own = not ray.is_initialized()
        if not self._own and address not in ("auto", "local", connected := _connected()):
            raise ConfigError(
                f"this process is connected to the Ray at {connected}, not to {address}: call ray.shutdown() first, "
                "or give the address 'auto' to use that one"
            )
        self._folder = _connect(address) if self._own else None

    def close(self) -> None:
        """End what was begun; idempotent."""
        if self._own:
            ray.shutdown()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._own, self._folder = False, None


def _connected() -> str:
    return str(ray.get_runtime_context().gcs_address)


class RayWorker:
    """The driver's side of one worker process; see ``forkgym.agents.crew.Worker``."""

    def __init__(self, place: RayWorkers) -> None:
        self._place = place
        self._actor: Any = None
        self._why = ""

    def play(self, ticket: Ticket) -> Outcome:
        """Play one ticket in the other process. If that dies, the episode failed, and the next ticket gets another."""
        self._why = ""
        try:
            if self._actor is None:
                self._actor = self._place.hire()
            return ray.get(self._actor.play.remote(ticket))
        except ray.exceptions.RayError as error:
            self._dismiss()
            episode = self._place.blank(ticket)
            if self._why or self._place.closed:
                cancel(episode, f"{self._why or 'stopped'}: its worker ended")
            else:
                fail(episode, HarnessError(f"the worker died: {str(error).splitlines()[0]}"))
            return episode

    def halt(self, ticket: Ticket, why: str) -> None:
        self._why = why
        actor = self._actor
        if actor is not None and not self._place.closed:
            actor.halt.remote(ticket, why)

    def close(self) -> None:
        if self._actor is None or self._place.closed:
            return
        with contextlib.suppress(ray.exceptions.RayError):
            ray.get(self._actor.close.remote(), timeout=CLOSE_SECONDS)
        self._dismiss()

    def _dismiss(self) -> None:
        actor, self._actor = self._actor, None
        if actor is not None and not self._place.closed:
            self._place.dismiss(actor)


class RemoteWorker:
    """What runs in a worker process."""

    def __init__(self, parts: bytes, policy: Policy | None) -> None:
        given, factory = pickle.loads(parts)
        self._own = None if factory is None else factory()
        self._worker = ThreadWorker(replace(given, policy=self._own or policy))

    def whereabouts(self) -> tuple[str, int]:
        """The node, and the process id on it."""
        return ray.get_runtime_context().get_node_id(), os.getpid()

    def play(self, ticket: Ticket) -> Outcome:
        outcome = self._worker.play(ticket)
        return _portable(outcome) if isinstance(outcome, BaseException) else outcome

    def halt(self, ticket: Ticket, why: str) -> None:
        self._worker.halt(ticket, why)

    def close(self) -> None:
        self._worker.close()
        if self._own is not None:
            self._own.close()


class Desk:
    """Answers the questions of worker processes from a policy in this one: many at once, so that it can batch."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._tray = ray.remote(num_cpus=0, max_concurrency=1000)(Tray).remote()
        self._closed = threading.Event()
        threading.Thread(target=self._serve, name="forkgym-desk", daemon=True).start()

    def policy(self) -> DeskPolicy:
        """The policy as the workers see it."""
        return DeskPolicy(self._tray, self._policy.version)

    def close(self) -> None:
        self._closed.set()
        ray.kill(self._tray)

    def _serve(self) -> None:
        with contextlib.suppress(ray.exceptions.RayError):
            while not self._closed.is_set():
                for number, prompts, params in ray.get(self._tray.take.remote(TAKE_SECONDS)):
                    threading.Thread(target=self._answer, args=(number, prompts, params), daemon=True).start()

    def _answer(self, number: int, prompts: Sequence[Sequence[int]], params: SamplingParams) -> None:
        try:
            answer: Any = self._policy.generate(prompts, params)
        except Exception as error:
            answer = _portable(error)
        if not self._closed.is_set():
            self._tray.answer.remote(number, answer)


class Tray:
    """Questions on their way to the policy, and answers on their way back. An actor."""

    def __init__(self) -> None:
        self._asked: asyncio.Queue[tuple[int, Any, Any]] = asyncio.Queue()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._count = 0

    async def ask(self, prompts: Sequence[Sequence[int]], params: SamplingParams) -> Any:
        """The policy's completions, or the exception that it raised."""
        self._count += 1
        number = self._count
        self._waiting[number] = asyncio.get_running_loop().create_future()
        await self._asked.put((number, prompts, params))
        return await self._waiting[number]

    async def take(self, seconds: float) -> list[tuple[int, Any, Any]]:
        """The questions that are there; waits a while for the first."""
        try:
            taken = [await asyncio.wait_for(self._asked.get(), seconds)]
        except TimeoutError:
            return []
        while not self._asked.empty():
            taken.append(self._asked.get_nowait())
        return taken

    async def answer(self, number: int, answer: Any) -> None:
        self._waiting.pop(number).set_result(answer)


class DeskPolicy:
    """The caller's policy, as a worker process sees it."""

    def __init__(self, tray: Any, version: int) -> None:
        self._tray = tray
        self.version = version

    def generate(self, prompts: Sequence[Sequence[int]], params: SamplingParams) -> list[Completion]:
        """As ``Policy.generate``; an end of the caller is a ``PolicyError``."""
        try:
            answer = ray.get(self._tray.ask.remote([list(prompt) for prompt in prompts], params))
        except ray.exceptions.RayError as error:
            raise PolicyError(f"the policy's process cannot be reached: {error}") from error
        if isinstance(answer, Exception):
            raise answer
        self.version = max([self.version, *(completion.version for completion in answer)])
        return answer

    def close(self) -> None:
        """The policy belongs to the caller."""


def sweep(processes: Sequence[int]) -> None:
    """Once these processes are gone, remove what dead ones left on this node."""
    deadline = time.monotonic() + CLOSE_SECONDS / 2
    while time.monotonic() < deadline and any(os.path.exists(f"/proc/{process}") for process in processes):
        time.sleep(0.01)
    for name in BACKENDS:
        with contextlib.suppress(ForkGymError):
            ground = backend(name)
            ground.gc()
            workspace.sweep(ground)


def _connect(address: str | None) -> str | None:
    """Connect to Ray; returns the folder of a Ray that was started for this run alone."""
    if ray.is_initialized():
        if address is not None:
            raise ConfigError("Ray is connected already; leave the address out, or call ray.shutdown() first")
        return None
    quiet = {"log_to_driver": False, "configure_logging": False}
    if address != "local" and (address is not None or os.environ.get("RAY_ADDRESS")):
        try:
            ray.init(address=address, **quiet)
        except ConnectionError as error:
            raise ConfigError(f"no Ray answers at {address or 'RAY_ADDRESS'!r}: {error}") from error
        return None
    folder = tempfile.mkdtemp(prefix="forkgym-ray-")
    ray.init(address="local", include_dashboard=False, _temp_dir=folder, **quiet)
    return folder


def _portable(error: BaseException) -> BaseException:
    """The exception itself if it survives being sent, else one that says the same."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return HarnessError(f"{type(error).__name__}: {error}")
    return error
