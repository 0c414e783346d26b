"""``HarnessAgent``: an unmodified agent program plays an episode, and every token its model sampled is kept.

The program runs in the agent's sandbox, installed read-only, without a network. A relay shows it the gateway on its own
loopback; the gateway is reached through a socket in a folder that is mounted too. When the program has ended, what it
did is graded like any other submission.
"""

from __future__ import annotations

import math
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from forkgym.agents.base import ChatFormat, Episode, Policy, SamplingParams
from forkgym.agents.errors import HarnessError, PolicyError
from forkgym.agents.gateway.history import StreamKind
from forkgym.agents.gateway.record import metrics, steps
from forkgym.agents.harnesses import runtime, store
from forkgym.agents.harnesses.base import CPU, PORT, ROOT, Harness, Place
from forkgym.agents.harnesses.doors import RELAY, START, Doors
from forkgym.agents.harnesses.registry import find_harness
from forkgym.agents.harnesses.watch import Watch
from forkgym.agents.loops.recording import Cancelled, finish, recording
from forkgym.envs.base import TruncationReason
from forkgym.envs.core import CodingEnv
from forkgym.errors import ConfigError
from forkgym.registry import unknown
from forkgym.sandboxes.base import ExecResult, Mount, Sandbox
from forkgym.sandboxes.errors import SandboxError

if TYPE_CHECKING:
    from forkgym.agents.gateway.server import Gateway
    from forkgym.agents.gateway.session import Session

MODEL = "forkgym"
KINDS: tuple[StreamKind, ...] = ("main", "subagent", "side")
_TAIL = 1500  # characters of a harness's last words
_LIMITS: Mapping[str, TruncationReason] = {"calls": "turns", "tokens": "tokens", "context": "context"}
_AWKWARD = ("-", "@", "/", "!", "#")  # at the start of a prompt, command lines take them for something else
# The relay is known by its command line, which the harness cannot change as it could a file with a process id. It may
# have been stopped, so it is told to continue.
_TAKE_DOWN = """
for process in /proc/[0-9]*; do
    line=; id=${process#/proc/}
    { read -r line < "$process/cmdline"; } 2>/dev/null
    case $line in *"$1"*) ;; *) continue;; esac
    [ "$id" = $$ ] && continue
    kill -s TERM "$id"; kill -s CONT "$id"
    for i in 1 2 3 4 5 6 7 8 9 10; do
        kill -s 0 "$id" || continue 2
        sleep 0.1
    done
    kill -s KILL "$id"
done
"""


class HarnessAgent:
    """Plays episodes with the harness of this name. Environments must be made with ``CodingEnv(mounts=agent.mounts)``.

    - ``format``: the chat format of the policy's model; ``None`` for a ``ChatEndpoint``, whose episodes hold no tokens.
    - ``stall``: seconds without a model call after which the harness counts as hung.
    - ``include``: the kinds of token streams that are kept for training: ``main``, ``subagent``, ``side`` (titles,
      summaries).
    - ``vary``: each group of episodes meets the harness in other words: see ``agents/gateway/disguise.py``.

    The environment's turns bound the model's calls, its tokens what they sample, its seconds the whole.
    Raises ``ConfigError`` for an unknown harness and ``InstallError`` for one that is not installed.
    """

    def __init__(
        self,
        format: ChatFormat | None,
        *,
        harness: str | Harness,
        stall: float = 600.0,
        include: Sequence[StreamKind] = ("main", "subagent"),
        vary: bool = False,
        name: str | None = None,
    ) -> None:
        if not stall > 0:
            raise ConfigError(f"stall must be a positive number of seconds, not {stall}")
        if wrong := sorted({*include} - {*KINDS}):
            raise ConfigError(unknown("kind of token stream", wrong[0], list(KINDS)))
        self.harness = find_harness(harness) if isinstance(harness, str) else harness
        self.name = name or self.harness.name
        self.format = format
        self._include, self._stall, self._vary = tuple(include), stall, vary
        self._installed = store.require(self.harness)
        self._doors = Doors(format)

    def __reduce__(self) -> tuple[Callable[[], HarnessAgent], tuple[()]]:
        """Another process gets what this was made of, and opens doors of its own there."""
        options: Mapping[str, Any] = {
            "harness": self.harness,
            "stall": self._stall,
            "include": self._include,
            "vary": self._vary,
            "name": self.name,
        }
        return partial(type(self), self.format, **options), ()

    @property
    def mounts(self) -> tuple[Mount, ...]:
        """What the sandboxes that it plays in must show."""
        return (*self._installed.mounts, Mount(str(self._doors.folder), self._run))

    @property
    def _run(self) -> str:
        return f"{ROOT}/run/{self.name}"

    def run(
        self,
        env: CodingEnv,
        policy: Policy | None,
        *,
        task: str,
        seed: int,
        sampling: SamplingParams,
        episode: str,
        group: str,
    ) -> Episode:
        """Play ``task`` to its end; see ``Agent.run``. Raises ``ConfigError``, everything else is recorded."""
        if policy is None:
            raise ConfigError(f"harness {self.name!r} needs a policy")
        record = Episode(episode, task, group, self.name, seed)
        record.sampling = {"temperature": sampling.temperature, "top_p": sampling.top_p, "top_k": sampling.top_k}
        with recording(record), self._open(policy) as (gateway, socket):
            start = time.perf_counter()
            observation, _ = env.reset(seed=seed, options={"task": task})
            record.metrics["reset_seconds"] = time.perf_counter() - start
            self._check_mounted(env.box)
            record.prompt = [{"role": "user", "content": observation["text"]}]
            left = env.left
            limits = {"max_calls": left.turns, "max_tokens": left.tokens}
            vary = zlib.crc32(group.encode()) if self._vary else None
            with gateway.open(episode, sampling, seed=seed, vary=vary, **limits) as session:
                try:
                    end = self._work(env, session, socket, observation["text"])
                finally:
                    self._keep(record, session)
                self._end(env, record, session, end)
            finish(record, env)
        return record

    def _open(self, policy: Policy) -> AbstractContextManager[tuple[Gateway, str]]:
        """The gateway of this policy, and the name of its socket."""
        return self._doors.open(policy)

    # ---- the harness in the sandbox

    def _work(self, env: CodingEnv, session: Session, socket: str, task: str) -> End:
        """Run the harness until it ends or is ended."""
        box = env.box
        user = box.exec(("/bin/sh", "-c", 'printf "%s" "$HOME"'))
        home = user.stdout.decode() or "/tmp"
        root = f"{ROOT}/{self.harness.name}"
        python = runtime.argv(self._installed.version)
        place = Place(
            root=root,
            url=f"http://127.0.0.1:{PORT}{session.path}",
            key=session.key,
            model=MODEL,
            task=safe(task),
            home=home,
            work=env.task.workdir,
            node=(f"{root}/node_modules/node-linux-{CPU}/bin/node",),
            python=(*python, f"{self._run}/{START.name}", f"{root}/site"),
        )
        launch = self.harness.launch(place)
        for path, text in launch.files.items():
            box.write_file(path, text.encode())
        relay = f"{self._run}/{RELAY.name}"
        seconds = env.left.seconds
        with Watch(session, self._stall, lambda: _take_down(box, relay)) as watch:
            result = box.exec(
                [*python, relay, f"{self._run}/{socket}", str(PORT), *launch.argv],
                cwd=env.task.workdir,
                env=launch.env,
                timeout=math.inf if seconds is None else max(seconds, 0.001),
            )
        return End(result, watch.stalled)

    def _check_mounted(self, box: Sandbox) -> None:
        missing = [mount for mount in self.mounts if mount not in box.spec.mounts]
        if missing:
            raise ConfigError(
                f"harness {self.name!r} is not in the sandbox: make the environment with mounts=agent.mounts "
                f"({missing[0].target} is missing)"
            )

    # ---- how it ended

    def _end(self, env: CodingEnv, record: Episode, session: Session, end: End) -> None:
        """End the environment's episode as the harness ended. Raises what failed."""
        result, why = end.result, session.ended
        env.charge_tokens(session.sampled_tokens)
        if why == "cancelled":
            raise Cancelled("the policy was told to stop")
        if why.startswith("engine"):
            raise PolicyError(why)
        if why in _LIMITS:
            env.truncate(_LIMITS[why])
        elif result.timed_out:
            env.truncate("time")
        elif end.stalled:
            raise HarnessError(f"no call of the model for {self._stall:g} s: the harness was ended. {_tail(result)}")
        elif not any(call.turn for call in session.calls):
            raise HarnessError(f"the harness never called the model (exit code {result.exit_code}). {_tail(result)}")
        elif result.exit_code not in self.harness.exit_codes:
            memory = " It was over the sandbox's memory limit." if result.oom_killed else ""
            raise HarnessError(f"the harness ended with exit code {result.exit_code}.{memory} {_tail(result)}")
        else:
            env.step({"tool": "submit", "arguments": {}})

    def _keep(self, record: Episode, session: Session) -> None:
        """Take over what was sampled and said."""
        record.segments = session.segments(self._include)
        record.steps = steps(session.calls, self._include)
        record.metrics |= metrics(session)


@dataclass(frozen=True)
class End:
    """How the harness's process ended; ``stalled``: it was ended, since it did nothing."""

    result: ExecResult
    stalled: bool


def safe(task: str) -> str:
    """The task as a command line can take it."""
    return f"Task: {task}" if task.startswith(_AWKWARD) else task


def _take_down(box: Sandbox, relay: str) -> None:
    """Make the relay take the harness along, and kill it if it does not; the command of both returns."""
    with suppress(SandboxError):
        box.exec(("/bin/sh", "-c", _TAKE_DOWN, "sh", relay), timeout=10)


def _tail(result: ExecResult) -> str:
    """The last words of a harness."""
    text = (result.stdout + result.stderr).decode(errors="replace").strip()
    return f"Its last words: {text[-_TAIL:]}" if text else "It said nothing."
