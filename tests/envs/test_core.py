"""Episodes from reset to the end: actions, limits, failures, rewards."""

import json
import math
import time
from dataclasses import replace
from typing import Any

import gymnasium as gym
import pytest
from gymnasium.error import ResetNeeded

from forkgym.envs.base import Malformed
from forkgym.envs.core import CodingEnv
from forkgym.errors import ConfigError
from forkgym.tasks import load
from forkgym.tasks.base import Budget
from forkgym.tasks.errors import TaskNotFoundError


def text(result):
    return result[0]["text"]


def bash_call(command, **more):
    return {"tool": "bash", "arguments": {"command": command, **more}}


def test_an_episode_that_solves_the_task(make, calc):
    env = make()
    observation, info = env.reset(seed=7)
    assert observation == {"text": calc.task().instruction}
    assert info == {
        "task": "test/calc",
        "seed": 7,
        "episode_index": 0,
        "turn": 0,
        "tokens": 0,
        "tool_error": False,
        "truncated": None,
    }
    assert text(env.step(calc.bash("ls; cat README.md"))) == "README.md\ncalc.py\nArithmetic.\n"
    env.step(calc.fix_add)
    env.step(calc.fix_double)
    assert env.outcome is None
    observation, reward, terminated, truncated, info = env.step(calc.submit)
    assert (reward, terminated, truncated) == (1.0, True, False)
    assert (info["reward"], info["turn"], info["verdict"]["score"]) == (1.0, 4, 1.0)
    assert info["verdict"]["resolved"] is True
    assert "failure" not in info
    json.dumps(info)
    outcome = env.outcome
    assert outcome is not None
    assert (outcome.status, outcome.reason, outcome.scored) == ("finished", "submitted", True)


def test_half_a_solution_is_not_resolved(make, calc):
    for reward, value in (("resolved", 0.0), ("score", 0.0), ("tests", 0.75)):
        env = make(reward=reward)
        env.reset(seed=1)
        env.step(calc.fix_add)
        assert env.step(calc.submit)[1] == value


def test_gym_make_as_in_the_readme(calc):
    env = gym.make("forkgym/SWE-v0", tasks=calc.task())
    try:
        observation, _ = env.reset(seed=7)
        observation, reward, terminated, truncated, _ = env.step(calc.bash("ls && cat README.md"))
        assert observation["text"].endswith("Arithmetic.\n")
        assert (reward, terminated, truncated) == (0.0, False, False)
        base: Any = env.unwrapped
        for branch in base.fork(2):
            assert text(branch.step(calc.bash("cat README.md"))) == "Arithmetic.\n"
            branch.close()
    finally:
        env.close()


def test_the_shell_persists_and_the_exit_code_is_shown(make, calc):
    env = make()
    env.reset(seed=1)
    env.step(calc.bash("mkdir sub && cd sub && export A=1 && f() { echo f$A; }"))
    assert text(env.step(calc.bash("pwd; f"))) == "/work/sub\nf1\n"
    assert text(env.step(calc.bash("echo out; (exit 3)"))) == "out\n[exit code 3]"
    assert text(env.step(calc.bash("false"))) == "[exit code 1]"
    assert text(env.step(calc.bash("true"))) == "[no output]"
    assert text(env.step(calc.bash("echo err >&2"))) == "err\n"
    assert text(env.step(calc.bash("echo a; sleep 60", timeout=1))).startswith("a\n[timed out after 1 s")
    assert "[the shell was restarted" in text(env.step(calc.bash("exit 0")))


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (None, "Not a valid action"),
        ({"tool": "bash", "arguments": {"command": 1}}, "bash.command must be a string"),
        ({"tool": "bahs", "arguments": {}}, "did you mean 'bash'"),
        (Malformed("Found no bash block."), "Found no bash block."),
    ],
)
def test_a_malformed_action_costs_a_turn_and_changes_nothing(make, calc, action, words):
    env = make()
    env.reset(seed=1)
    observation, reward, terminated, truncated, info = env.step(action)
    assert words in observation["text"]
    assert (reward, terminated, truncated, info["turn"], info["tool_error"]) == (0.0, False, False, 1, True)
    assert env.box.read_file("/work/calc.py") == calc.broken
    assert env.step(calc.bash("true"))[4]["tool_error"] is False


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


class Silent(str):
    def __repr__(self):
        raise RuntimeError("no repr")


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (bash_call("ls", timeout=10**400), "bash.timeout must be a number, got one beyond 2**63"),
        (bash_call("ls", timeout=-(10**5000)), "bash.timeout must be a number, got one beyond 2**63"),
        ({"tool": 10**5000, "arguments": {}}, "it cannot be read (ValueError)"),
        ({"tool": "bash", "arguments": nested(100_000)}, "bash must be an object, got an array"),
        ({Silent("tool"): "bash"}, "it cannot be read (RuntimeError)"),
        (Malformed("half of a pair: \ud800"), "half of a pair: \\ud800"),
    ],
    ids=["huge timeout", "number without text", "tool without text", "deep", "no repr", "surrogate"],
)
def test_hostile_values_are_answered_like_any_wrong_action(make, action, words):
    env = make(render_mode="ansi")
    env.reset(seed=1)
    observation, _, terminated, truncated, info = env.step(action)
    assert words in observation["text"]
    assert observation in env.observation_space
    assert (terminated, truncated, info["tool_error"], info["turn"]) == (False, False, True, 1)
    env.render().encode()


@pytest.mark.parametrize("count", [-1, math.nan, 1.5, True, None, "3"])
def test_only_whole_tokens_are_counted(make, count):
    env = make()
    env.reset(seed=1)
    with pytest.raises(ConfigError, match="charge_tokens"):
        env.charge_tokens(count)
    assert env.usage()["tokens"] == 0


def test_a_limit_that_does_not_exist_is_refused(make):
    env = make()
    env.reset(seed=1)
    with pytest.raises(ConfigError, match="unknown reason 'contxt'; did you mean 'context'"):
        env.truncate("contxt")
    assert env.outcome is None


def test_the_turn_limit_truncates_and_grades(make, calc):
    env = make(max_turns=2)
    env.reset(seed=1)
    env.step(calc.fix_add)
    _, reward, terminated, truncated, info = env.step(calc.fix_double)
    assert (reward, terminated, truncated, info["truncated"]) == (1.0, False, True, "turns")
    assert (env.outcome.status, env.outcome.reason) == ("truncated", "turns")


def test_submitting_on_the_last_turn_is_a_submission(make, calc):
    env = make(max_turns=1)
    env.reset(seed=1)
    _, _, terminated, truncated, info = env.step(calc.submit)
    assert (terminated, truncated, info["truncated"]) == (True, False, None)


def test_tokens_truncate_at_the_next_step_once_exceeded(make, calc):
    env = make(max_tokens=10)
    env.reset(seed=1)
    env.charge_tokens(10)
    assert env.step(calc.bash("true"))[3] is False
    env.charge_tokens(1)
    observation, _, terminated, truncated, info = env.step(calc.bash("echo last"))
    assert observation["text"] == "last\n"
    assert (terminated, truncated, info["truncated"], info["tokens"]) == (False, True, "tokens", 11)


def test_time_truncates_and_cuts_the_command_short(make, calc):
    env = make(max_seconds=2)
    env.reset(seed=1)
    observation, _, terminated, truncated, info = env.step(calc.bash("echo begun; sleep 60"))
    assert observation["text"].startswith("begun\n[timed out after 1.")
    assert (terminated, truncated, info["truncated"]) == (False, True, "time")


def test_nothing_runs_once_the_time_is_up_but_a_submission_counts(make, calc):
    env = make(max_seconds=0.01)
    for action, status in ((calc.bash("touch late"), "truncated"), (calc.submit, "finished")):
        env.reset(seed=1)
        time.sleep(0.02)
        env.step(action)
        assert env.outcome.status == status
        assert b"late" not in env.box.exec("ls").stdout


def test_a_limit_of_the_caller_is_graded_too(make, calc):
    env = make()
    env.reset(seed=1)
    env.step(calc.fix_add)
    env.step(calc.fix_double)
    _, reward, terminated, truncated, info = env.truncate("context")
    assert (reward, terminated, truncated, info["truncated"]) == (1.0, False, True, "context")


def test_budgets_come_from_the_task_unless_overridden(make, calc):
    env = make(calc.task(budget=Budget(1, None, None)))
    env.reset(seed=1)
    assert env.step(calc.bash("true"))[4]["truncated"] == "turns"
    env = make(calc.task(budget=Budget(1, None, None)), max_turns=2)
    env.reset(seed=1)
    assert env.step(calc.bash("true"))[4]["truncated"] is None


def test_long_output_is_cut_with_a_note(make, calc):
    env = make(max_observation_chars=300)
    env.reset(seed=1)
    observation = text(env.step(calc.bash("seq 1 10000")))
    assert len(observation) == 300
    assert observation.startswith("1\n2\n")
    assert observation.endswith("10000\n")
    assert "characters cut" in observation
    assert env.observation_space.contains({"text": observation})


def test_step_before_reset_and_after_the_end(make, calc):
    env = make()
    with pytest.raises(ResetNeeded, match="call reset"):
        env.step(calc.submit)
    env.reset(seed=1)
    env.step(calc.submit)
    for late in (
        lambda: env.step(calc.submit),
        lambda: env.fork(),
        lambda: env.snapshot(),
        lambda: env.charge_tokens(1),
    ):
        with pytest.raises(ResetNeeded, match="over"):
            late()
    env.reset()
    assert env.step(calc.bash("true"))[4]["turn"] == 1


def test_close_twice_and_use_after(make, calc):
    env = make()
    env.close()
    env.reset(seed=1)
    box = env.box
    env.close()
    env.close()
    assert not box.alive
    with pytest.raises(ResetNeeded):
        env.step(calc.submit)


def test_an_environment_that_is_dropped_leaves_no_sandbox(calc):
    env = CodingEnv(calc.task())
    env.reset(seed=1)
    box = env.box
    del env
    assert not box.alive


def test_reset_replaces_the_sandbox(make, calc):
    env = make()
    env.reset(seed=1)
    box = env.box
    env.step(calc.fix_add)
    env.reset()
    assert not box.alive
    assert env.box.read_file("/work/calc.py") == calc.broken


def test_tasks_are_drawn_by_seed_and_named_by_option(make, calc):
    env = make(*(calc.task(f"t{i}") for i in range(10)))
    drawn = [env.reset(seed=5)[1]["task"], *(env.reset()[1]["task"] for _ in range(5))]
    assert [env.reset(seed=5)[1]["task"], *(env.reset()[1]["task"] for _ in range(5))] == drawn
    assert len(set(drawn)) > 1
    observation, info = env.reset(seed=5, options={"task": "test/t3"})
    assert info["task"] == "test/t3"
    assert observation["text"].startswith("This is t3.")
    assert [env.reset(seed=5)[1]["episode_index"], env.reset()[1]["episode_index"]] == [0, 1]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_turn": 3}, "did you mean 'max_turns'"),
        ({"reward_mode": "finale"}, "did you mean 'final'"),
        ({"reward": "resolve"}, "did you mean 'resolved'"),
        ({"render_mode": "rgb_array"}, "Known: None, ansi, human"),
        ({"tools": ["bash", "bush"]}, "did you mean 'bash'"),
        ({"sandbox": "locale"}, "did you mean 'local'"),
        ({"max_turns": 0}, "max_turns must be a positive"),
        ({"max_turns": 1.5}, "max_turns must be a positive whole number"),
        ({"max_turns": "3"}, "max_turns must be a positive whole number"),
        ({"max_turns": True}, "max_turns must be a positive whole number"),
        ({"limits": {"memroy": "1G"}}, "did you mean 'memory'"),
        ({"max_seconds": -1.0}, "max_seconds must be a positive"),
        ({"max_tokens": math.inf}, "max_tokens must be a positive"),
        ({"max_observation_chars": 0}, "max_observation_chars must be a positive"),
        ({"tasks": "swe/tinny/*"}, "swe/tinny"),
        ({"split": "tests"}, "tests"),
    ],
)
def test_bad_options_are_refused_at_construction(calc, options, words):
    with pytest.raises(ConfigError, match=words):
        CodingEnv(**{"tasks": calc.task(), **options})


def test_bad_reset_options_are_refused_and_the_next_reset_works(make):
    env = make()
    with pytest.raises(ConfigError, match="did you mean 'task'"):
        env.reset(options={"tasks": "x"})
    with pytest.raises(ConfigError, match="is a task id"):
        env.reset(options={"task": 3})
    with pytest.raises(TaskNotFoundError, match="near: test/calc"):
        env.reset(options={"task": "test/calk"})
    env.reset(seed=1, options={"task": None})


def test_a_dead_sandbox_is_a_failure_and_not_a_reward(make, calc):
    env = make()
    env.reset(seed=1)
    env.box.close()
    observation, reward, terminated, truncated, info = env.step(calc.bash("ls"))
    assert (reward, terminated, truncated) == (0.0, False, True)
    assert info["failure"]["kind"] == "sandbox"
    assert info["reward"] is None
    assert "verdict" not in info
    assert info["truncated"] is None
    assert env.observation_space.contains(observation)
    assert (env.outcome.status, env.outcome.reason, env.outcome.scored) == ("failed", "sandbox", False)
    json.dumps(info)
    env.reset()
    assert env.step(calc.submit)[2] is True


def test_a_tool_that_raises_is_a_failure_of_the_harness(make, calc):
    class Broken:
        name, description, parameters = "broken", "raises", {"type": "object", "properties": {}}

        def run(self, box, task, arguments, *, limit):
            raise KeyError("oops")

        def fork(self):
            return self

    env = make(tools=["bash", Broken()])
    env.reset(seed=1)
    info = env.step({"tool": "broken", "arguments": {}})[4]
    assert info["failure"] == {"kind": "harness", "reason": "KeyError: 'oops'"}


@pytest.mark.parametrize("value", [math.nan, math.inf, "half"])
def test_a_reward_that_is_no_finite_number_is_a_failure_of_the_grader(make, calc, value):
    env = make(reward=lambda verdict: value)
    env.reset(seed=1)
    _, reward, terminated, truncated, info = env.step(calc.submit)
    assert (reward, terminated, truncated, info["failure"]["kind"]) == (0.0, False, True, "grader")


def test_delta_rewards_sum_to_the_gain(make, calc):
    env = make(reward="tests", reward_mode="delta")
    env.reset(seed=1)
    assert env.step(calc.fix_add)[1] == 0.25
    assert env.step(calc.bash("true"))[1] == 0.0
    assert env.step(calc.bash("git checkout calc.py 2>/dev/null; sed -i 's/a + b/a - b/' calc.py"))[1] == -0.25
    env.step(calc.fix_add)
    env.step(calc.fix_double)
    _, reward, _, _, info = env.step(calc.submit)
    assert (reward, info["reward"]) == (0.0, 1.0)


def test_potential_rewards_shape_and_telescope(make, calc):
    env = make(reward="resolved", reward_mode="potential")
    env.reset(seed=1)
    rewards = [env.step(action)[1] for action in (calc.fix_add, calc.fix_double)]
    assert rewards == [0.25, 0.25]
    rewards.append(env.step(calc.submit)[1])
    assert rewards[-1] == 1.0 - 1.0  # the state before had potential 1, the end has none
    assert sum(rewards) == 1.0 - 0.5


def test_grading_does_not_touch_the_episode(make, calc):
    env = make()
    env.reset(seed=1)
    env.step(calc.fix_add)
    verdict = env.grade()
    assert (verdict.score, verdict.components["tests"], verdict.resolved) == (0.0, 0.75, False)
    passed = {finding.id.rsplit(".", 1)[1] for finding in verdict.findings if finding.passed}
    assert passed == {"test_add", "test_negate", "test_negate_zero"}
    assert env.outcome is None
    assert text(env.step(calc.bash("ls -A"))) == "README.md\ncalc.py\n"
    env.step(calc.fix_double)
    assert env.step(calc.submit)[1] == 1.0


def test_render_ansi_is_the_transcript(make, calc):
    env = make(render_mode="ansi")
    env.reset(seed=1)
    env.step(calc.bash("echo hello"))
    shown = env.render()
    assert calc.task().instruction in shown
    assert "echo hello" in shown
    assert shown.endswith("hello\n")
    assert [kind for kind, _ in env.transcript] == ["task", "action", "observation"]


def test_render_human_prints_as_it_goes(make, calc, capsys):
    env = make(render_mode="human")
    env.reset(seed=1)
    env.step(calc.bash("echo hello"))
    assert env.render() is None
    printed = capsys.readouterr().out
    assert calc.task().instruction in printed
    assert "\nhello\n" in printed


def test_tasks_with_other_tools_are_not_given_the_wrong_ones(make, calc):
    two = calc.task("one"), calc.task("two", tools=("bash", "submit"))
    env = make(*two)
    env.reset(options={"task": "test/one"})
    with pytest.raises(ConfigError, match=r"names the tools bash, submit.*give tools="):
        env.reset(options={"task": "test/two"})
    env = make(*two, tools=["bash", "submit"])
    for task in ("test/one", "test/two"):
        env.reset(options={"task": task})


def test_limits_replace_those_of_the_task(make, calc):
    env = make(limits={"memory": "64M"})
    env.reset(seed=1)
    assert env.task.limits.memory == env.box.spec.limits.memory == 64 << 20
    text = env.step(calc.bash("python3 -c 'x = bytearray(200 << 20)'"))[0]["text"]
    assert "out of memory" in text or "MemoryError" in text


def test_usage_counts(make, calc):
    env = make()
    env.reset(seed=1)
    env.charge_tokens(3)
    env.step(calc.bash("true"))
    usage = env.usage()
    assert (usage["turns"], usage["tokens"]) == (1, 3)
    assert 0 < usage["seconds"] < 60


def test_an_instruction_longer_than_the_cap_is_still_whole(make, calc):
    long = "word " * 2000
    env = make(replace(calc.task(), instruction=long), max_observation_chars=100)
    observation, _ = env.reset(seed=1)
    assert observation == {"text": long}
    assert env.observation_space.contains(observation)


def test_an_image_that_the_backend_lacks_is_refused_at_construction():
    task = replace(load("swe/tiny/clamp/upper-bound")[0], image="hots")
    with pytest.raises(ConfigError, match=r"unknown image 'hots'; did you mean 'host'.* on backend 'local'"):
        CodingEnv(task)
    with CodingEnv([load("swe/tiny/clamp/lower-bound")[0], task]) as env, pytest.raises(ConfigError, match="'hots'"):
        env.reset(seed=1, options={"task": task.id})
