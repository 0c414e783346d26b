"""A task may name an image that was built after this process first asked what there is."""

import gc
from dataclasses import replace

import pytest

from forkgym import sandboxes
from forkgym.envs.core import CodingEnv
from forkgym.errors import ConfigError
from forkgym.sandboxes.images import recipe
from forkgym.sandboxes.images.build import build
from forkgym.sandboxes.images.store import open_store
from forkgym.sandboxes.local import cleanup
from forkgym.tasks import load


def test_an_image_of_a_recipe_serves_episodes_and_their_grading(tmp_path, own_state):
    task = replace(load("swe/tiny/clamp/upper-bound")[0], image="served")
    with pytest.raises(ConfigError, match=r"unknown image 'served'.*`forkgym images build` makes more"):
        CodingEnv(task)
    (tmp_path / "served.yaml").write_text("schema: 1\nname: served\nfrom: host\nsteps: [{run: echo here >/mark}]\n")
    build(recipe.load(str(tmp_path / "served.yaml")))
    with CodingEnv(task, sandbox=sandboxes.backend("local")) as env:  # with one of its own, it shares no prepared tasks
        env.reset(seed=1)
        observation = env.step({"tool": "bash", "arguments": {"command": "cat /mark"}})[0]
        assert "here" in observation["text"]
        assert env.grade().score == 0.0
        assert env.fork(1)[0].grade().score == 0.0
    del env
    gc.collect()
    cleanup.wait()
    store = open_store(own_state)
    store.prune(unused_names=True)
    assert store.record("served") is None
