"""An agent program in the sandbox, behind the gateway: how it may end, what is recorded, and what it cannot reach."""

from __future__ import annotations

import json
import os
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from forkgym.agents.base import Completion, Episode, SamplingParams
from forkgym.agents.collect import Job, collect
from forkgym.agents.errors import InstallError, PolicyError
from forkgym.agents.formats.chatml import ChatML
from forkgym.agents.harnesses import doors, store
from forkgym.agents.harnesses.agent import HarnessAgent
from forkgym.agents.harnesses.base import ROOT, Harness, Launch, Place
from forkgym.agents.policies.scripted import ScriptedPolicy
from forkgym.envs.core import CodingEnv
from forkgym.errors import ConfigError
from forkgym.sandboxes import state
from forkgym.sandboxes.base import Mount
from forkgym.tasks.base import Task

pytest.importorskip("starlette", reason="the extra gateway is not installed")

FIX = "sed -i 's/return x$/return high/;5s/.*/        return high/;6s/.*/    return x/' clamp.py"
# A harness as small as can be: bash for whatever the model says, until it says "done".
PROGRAM = """
import json, os, subprocess, sys, time, urllib.error, urllib.request
url, key, task, mode = sys.argv[1:5]
print("hello from the harness", flush=True)
if mode == "silent":
    sys.exit(0)
if mode == "sleep":
    time.sleep(600)
messages = [{"role": "user", "content": task}]
while True:
    tools = [{"type": "function", "function": {"name": "run_bash", "parameters": {"type": "object"}}}]
    body = json.dumps({"model": "m", "messages": messages, "tools": tools if mode == "tools" else []}).encode()
    head = {"Authorization": "Bearer " + key, "Content-Type": "application/json"}
    try:
        with urllib.request.urlopen(urllib.request.Request(url + "/v1/chat/completions", body, head)) as answer:
            text = json.load(answer)["choices"][0]["message"]["content"]
    except urllib.error.HTTPError as error:
        if mode == "stubborn":
            time.sleep(0.1)
            continue
        sys.exit(f"the gateway said {error.code}: {error.read().decode()}")
    if mode == "crash":
        sys.exit("something is wrong with me")
    if text == "done":
        break
    done = subprocess.run(["bash", "-c", text], capture_output=True, text=True)
    messages += [{"role": "assistant", "content": text}, {"role": "user", "content": done.stdout + done.stderr}]
    if mode == "hang":
        time.sleep(600)
"""


def toy(mode: str = "") -> Harness:
    """A harness of which nothing needs to be installed but the interpreter."""

    def launch(place: Place) -> Launch:
        path = f"{place.home}/toy.py"
        argv = [*place.python[:-2], path, place.url, place.key, place.task, mode]
        return Launch(argv, {"TOY": "1"}, {path: PROGRAM})

    return Harness("toy", "pip", (), "chat", launch, shell=lambda command: ("bash", {"command": command}))


@pytest.fixture(scope="module", autouse=True)
def toy_store(places: Callable[..., Any]) -> Iterator[None]:
    with places() as place, pytest.MonkeyPatch.context() as patch:
        patch.setenv(store.ENVIRONMENT, str(place / "harnesses"))
        store.install(toy())
        yield


@pytest.fixture
def play(make_task: Callable[..., Task]) -> Iterator[Callable[..., Episode]]:
    """``play(mode, script, ...)``: one episode of the toy."""
    made: list[CodingEnv] = []

    def run(
        mode: str,
        script: Any,
        *,
        task: Task | None = None,
        policy: Any = None,
        stall: float = 60.0,
        vary: bool = False,
        group: str = "g",
        **options: Any,
    ) -> Episode:
        policy = policy or ScriptedPolicy(script)
        agent = HarnessAgent(ChatML(ScriptedPolicy([]).tokenizer), harness=toy(mode), stall=stall, vary=vary)
        env = CodingEnv([task or make_task()], mounts=agent.mounts, **options)
        made.append(env)
        sampling = SamplingParams(max_tokens=200)
        return agent.run(env, policy, task="test/clamp", seed=3, sampling=sampling, episode="e", group=group)

    yield run
    for env in made:
        env.close()


def test_what_it_did_is_graded_and_every_sampled_token_is_kept(play: Callable[..., Episode]) -> None:
    policy = ScriptedPolicy([FIX, "cat clamp.py", "done"])
    episode = play("", None, policy=policy)
    assert (episode.status, episode.reason, episode.reward, episode.detail) == ("finished", "submitted", 1.0, "")
    assert [step.text for step in episode.steps] == [FIX, "cat clamp.py", "done"]
    assert "return high" in episode.steps[1].observation
    (segment,) = episode.segments
    sampled = [id for id, mine in zip(segment.ids, segment.sampled, strict=True) if mine]
    end = policy.tokenizer.special("<|im_end|>")
    said = [[*text.encode(), end] for text in (FIX, "cat clamp.py", "done")]  # a byte is a token
    assert sampled == [id for turn in said for id in turn]
    # The policy was asked with exactly the ids that stand before each turn of the stream.
    starts = [i for i, mine in enumerate(segment.sampled) if mine and not segment.sampled[i - 1]]
    assert [list(call.ids) for call in policy.calls] == [segment.ids[:start] for start in starts]
    assert episode.metrics["calls"] == 3
    assert episode.metrics["sampled_tokens"] == len(sampled)


def test_each_group_may_meet_the_harness_in_other_words(play: Callable[..., Episode]) -> None:
    seen: list[str] = []

    def script(call: Any) -> str:
        seen.append(json.loads(call.text.split("<tools>\n")[-1].split("\n")[0])["function"]["name"])
        return "done"

    for group in ("a", "a", "b", "c", "d"):
        assert play("tools", script, vary=True, group=group).status == "finished"
    assert seen[0] == seen[1]
    assert len(set(seen)) >= 3
    play("tools", script)
    assert seen[-1] == "run_bash"


@pytest.mark.parametrize("mode", ["", "stubborn"])
def test_calls_over_the_turns_end_as_truncated_and_are_graded(play: Callable[..., Episode], mode: str) -> None:
    episode = play(mode, lambda call: FIX, max_turns=2)
    assert (episode.status, episode.reason, episode.reward) == ("truncated", "turns", 1.0)
    assert len(episode.steps) == 2


def test_tokens_over_the_budget_end_as_truncated(play: Callable[..., Episode]) -> None:
    episode = play("", lambda call: "echo " + "x" * 50, max_tokens=100)
    assert (episode.status, episode.reason, episode.reward) == ("truncated", "tokens", 0.0)
    assert episode.metrics["sampled_tokens"] <= 100


def test_a_full_window_ends_as_truncated(play: Callable[..., Episode]) -> None:
    episode = play("", None, policy=ScriptedPolicy(lambda call: "seq 100", window=600))
    assert (episode.status, episode.reason, episode.reward) == ("truncated", "context", 0.0)


def test_time_over_ends_as_truncated(play: Callable[..., Episode]) -> None:
    episode = play("hang", lambda call: FIX, max_seconds=10.0)
    assert (episode.status, episode.reason, episode.reward) == ("truncated", "time", 1.0)


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("crash", "ended with exit code 1. Its last words: hello from the harness\nsomething is wrong with me"),
        ("silent", "never called the model (exit code 0). Its last words: hello from the harness"),
        ("sleep", "no call of the model for 1 s"),
        ("hang", "no call of the model for 1 s"),
    ],
)
def test_its_own_failure_is_never_a_reward_of_zero(play: Callable[..., Episode], mode: str, said: str) -> None:
    stall = 1.0 if said.startswith("no call") else 60.0  # of a busy machine the first call may take seconds
    episode = play(mode, lambda call: FIX, stall=stall)
    assert (episode.status, episode.reason, episode.reward) == ("failed", "harness", None)
    assert said in episode.detail


def test_a_failed_engine_is_the_engines_fault(play: Callable[..., Episode]) -> None:
    episode = play("", [FIX, PolicyError("out of memory")])
    assert (episode.status, episode.reason, episode.reward) == ("failed", "engine", None)
    assert "out of memory" in episode.detail
    assert [step.text for step in episode.steps] == [FIX]  # what was sampled before is on record


def test_a_cancelled_policy_cancels(play: Callable[..., Episode]) -> None:
    episode = play("", lambda call: Completion((), (), "cancelled"))
    assert (episode.status, episode.reward) == ("cancelled", None)


def test_the_sandbox_has_no_other_way_out_and_cannot_write_to_the_harness(play: Callable[..., Episode]) -> None:
    script = [
        f"touch {ROOT}/toy/x {ROOT}/run/toy/x; ls {ROOT}/run/toy",
        "grep -c : /proc/net/dev; grep -o ' lo:' /proc/net/dev; wc -l </proc/net/route",
        "done",
    ]
    written, network = (step.observation for step in play("", script).steps[:2])
    assert written.count("Read-only file system") == 2
    assert "relay.py\nsocket0\nstart.py\n" in written
    assert network.split() == ["1", "lo:", "1"]  # one interface; of routes, only the heading


def test_graders_do_not_see_the_harness(make_task: Callable[..., Task], play: Callable[..., Episode]) -> None:
    """The hidden test passes only where no harness is mounted, and the agent's own sandbox has one."""
    test = f"""import os, unittest
class TestClamp(unittest.TestCase):
    def test_above(self):
        self.assertFalse(os.path.exists("{ROOT}/run/toy/start.py"))
    def test_inside(self):
        self.assertFalse(os.path.exists("{ROOT}/run/toy/relay.py"))
"""
    task = replace(make_task(), hidden={"test_clamp.py": test.encode()})
    episode = play("", [f"ls {ROOT}/run/toy/start.py {ROOT}/run/toy/relay.py && {FIX}", "done"], task=task)
    assert episode.reward == 1.0
    assert "relay.py" in episode.steps[0].observation


def test_an_environment_without_the_mounts_is_refused(make_task: Callable[..., Task]) -> None:
    agent = HarnessAgent(ChatML(ScriptedPolicy([]).tokenizer), harness=toy())
    env = CodingEnv([make_task()])
    try:
        with pytest.raises(ConfigError, match=r"mounts=agent\.mounts"):
            agent.run(
                env, ScriptedPolicy([]), task="test/clamp", seed=0, sampling=SamplingParams(), episode="e", group="g"
            )
    finally:
        env.close()


def test_many_at_once_keep_their_own_tokens_and_leave_nothing(make_task: Callable[..., Task]) -> None:
    agent = HarnessAgent(ChatML(ScriptedPolicy([]).tokenizer), harness=toy())
    policy = ScriptedPolicy([f"{FIX}; echo $RANDOM", "echo two", "done"])
    jobs = [Job("test/clamp", n, "g", f"e{n}") for n in range(6)]
    found = collect(
        jobs, lambda: CodingEnv([make_task()], mounts=agent.mounts), agent, policy,
        sampling=SamplingParams(max_tokens=200), concurrency=3,
    )  # fmt: skip
    assert [e.reward for e in found.episodes] == [1.0] * 6
    said = [step.observation for e in found.episodes for step in e.steps[:1]]
    shown = [ScriptedPolicy([]).tokenizer.decode(e.segments[0].ids) for e in found.episodes]
    assert all(mine.strip() in whole for mine, whole in zip(said, shown, strict=True))
    assert sorted(os.listdir(agent.mounts[-1].source)) == ["relay.py", "start.py"]
    assert not [
        thread for thread in threading.enumerate() if thread.name.startswith(("forkgym-gateway", "forkgym-harness"))
    ]


def test_cancelled_in_the_middle_nothing_is_left(make_task: Callable[..., Task]) -> None:
    agent = HarnessAgent(ChatML(ScriptedPolicy([]).tokenizer), harness=toy("hang"))
    stop = threading.Event()

    def say(call: Any) -> str:
        threading.Timer(0.5, stop.set).start()
        return FIX

    jobs = [Job("test/clamp", 0, "g", "e")]
    found = collect(
        jobs, lambda: CodingEnv([make_task()], mounts=agent.mounts), agent, ScriptedPolicy(say),
        sampling=SamplingParams(max_tokens=200), cancel=stop,
    )  # fmt: skip
    (episode,) = found.episodes
    assert (episode.status, episode.reward) == ("cancelled", None)
    assert [step.text for step in episode.steps] == [FIX]
    assert not list((state.state_dir() / "boxes").iterdir())


def test_a_failed_attempt_leaves_no_trace_in_the_next(make_task: Callable[..., Task]) -> None:
    """E11: attempt 1 makes 2 calls and fails, attempt 2 makes 3, under the same job."""
    agent = HarnessAgent(ChatML(ScriptedPolicy([]).tokenizer), harness=toy())
    calls = 0

    def say(call: Any) -> Any:
        nonlocal calls
        calls += 1
        return [FIX, PolicyError("once"), "echo again", FIX, "done"][calls - 1]

    found = collect(
        [Job("test/clamp", 0, "g", "e")], lambda: CodingEnv([make_task()], mounts=agent.mounts), agent,
        ScriptedPolicy(say), sampling=SamplingParams(max_tokens=200), retries=1, max_failed_share=0.9,
    )  # fmt: skip
    (first,), (second,) = found.retried, found.episodes
    assert [step.text for step in first.steps] == [FIX]
    assert [step.text for step in second.steps] == ["echo again", FIX, "done"]
    assert (first.reward, second.reward) == (None, 1.0)
    assert sum(sum(segment.sampled) for segment in second.segments) == sum(
        len(text) + 1 for text in ("echo again", FIX, "done")
    )


def test_a_fork_of_the_environment_shows_the_harness_too(make_task: Callable[..., Task]) -> None:
    agent = HarnessAgent(ChatML(ScriptedPolicy([]).tokenizer), harness=toy())
    env = CodingEnv([make_task()], mounts=agent.mounts)
    look: Any = {"tool": "bash", "arguments": {"command": f"ls {ROOT}/toy {ROOT}/run/toy"}}
    try:
        env.reset(seed=0)
        with env.fork(1)[0] as fork:
            assert "relay.py" in fork.step(look)[0]["text"]
        saved = env.snapshot()
        env.restore(saved)
        assert "relay.py" in env.step(look)[0]["text"]
    finally:
        env.close()


def test_a_mount_in_the_working_directory_is_refused(make_task: Callable[..., Task]) -> None:
    with pytest.raises(ConfigError, match="would be handed in"):
        CodingEnv([make_task()], mounts=[Mount("/usr/share", "/work/share")])


def test_sockets_of_a_dead_process_are_swept() -> None:
    place = state.state_dir() / "gateways"
    mine = doors.Doors(ChatML(ScriptedPolicy([]).tokenizer)).folder  # gone at once: nobody holds it
    assert not mine.exists()
    dead = place / f"0123@{replace(state.Owner.current(), start=1).tag()}"
    dead.mkdir(parents=True)
    kept = doors.Doors(ChatML(ScriptedPolicy([]).tokenizer))
    assert not dead.exists()
    assert kept.folder.exists()


def test_what_is_not_installed_says_how() -> None:
    with pytest.raises(InstallError, match="forkgym harness install pi"):
        HarnessAgent(ChatML(ScriptedPolicy([]).tokenizer), harness="pi")
    with pytest.raises(ConfigError, match="did you mean 'mini-swe-agent'"):
        HarnessAgent(ChatML(ScriptedPolicy([]).tokenizer), harness="mini-swe-agnt")


def test_an_installation_that_was_killed_is_made_again() -> None:
    folder = store.store_dir()
    (folder / ".half" / "site").mkdir(parents=True)
    assert store.remove(toy())
    assert store.find(toy()) is None
    found = store.install(toy())
    assert json.loads((found.folder / "harness.json").read_text())["packages"] == []
    assert not (folder / ".half").exists()
    assert os.stat(found.folder).st_mode & 0o777 == 0o755
    before = found.folder.stat().st_mtime_ns
    time.sleep(0.01)
    assert store.install(toy()).folder.stat().st_mtime_ns == before


def test_workers_of_ray_play_it_with_doors_of_their_own(make_task: Callable[..., Task]) -> None:
    """The agent travels as what it was made of; an environment made with its mounts shows the worker's own doors."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'forkgym[ray]'")
    policy = ScriptedPolicy(lambda call: [FIX, "done"][call.turn])
    agent, task = HarnessAgent(ChatML(policy.tokenizer), harness=toy(), stall=60.0), make_task()
    jobs = [Job("test/clamp", seed=i, group="g", id=f"e{i}") for i in range(2)]
    run = collect(
        jobs,
        lambda: CodingEnv([task], mounts=agent.mounts),
        agent,
        policy,
        sampling=SamplingParams(max_tokens=200),
        concurrency=1,
        on="ray",
    )
    assert [(e.status, e.reward, e.detail) for e in run.episodes] == [("finished", 1.0, "")] * 2
    assert [sum(map(sum, (s.sampled for s in e.segments))) for e in run.episodes] == [len(FIX) + len("done") + 2] * 2


def test_a_factory_that_is_sent_with_the_agent_shows_the_doors_over_there() -> None:
    """The environment's factory and the agent travel together, and come out with the same mounts."""
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'forkgym[ray]'")
    agent = HarnessAgent(ChatML(ScriptedPolicy([]).tokenizer), harness=toy(), stall=7.0)
    make, there = pickle.loads(ray.cloudpickle.dumps((lambda: agent.mounts, agent)))
    assert make() == there.mounts
    assert there.name == "toy"
    assert {mount.target for mount in there.mounts} == {mount.target for mount in agent.mounts}
    assert set(there.mounts) - set(agent.mounts), "its sockets must lie in a folder of its own"
