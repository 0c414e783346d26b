"""``forkgym images``: what a person and a machine get to see."""

import gc
import json
from pathlib import Path

import pytest

from forkgym.sandboxes import create
from forkgym.sandboxes.images.store import open_store
from forkgym.sandboxes.local import cleanup


@pytest.fixture(autouse=True)
def clean(own_state):
    yield
    cleanup.wait()
    open_store(own_state).prune(unused_names=True)


@pytest.fixture
def built(forkgym):
    """The image ``mine``, and what building it said."""
    Path("mine.yaml").write_text("schema: 1\nname: mine\nfrom: host\nsteps:\n  - run: echo 1 >/one\n")
    return forkgym("images", "build", "./mine.yaml")


def test_build_shows_progress_apart_from_the_result(built, forkgym):
    assert built.returncode == 0
    assert built.stdout.startswith("mine@")
    assert "building  run: echo 1 >/one" in built.stderr
    again = forkgym("images", "build", "mine.yaml", "--json")
    made = json.loads(again.stdout)
    assert (made["name"], made["layers"], made["docker"]) == ("mine", ["run: echo 1 >/one"], None)
    assert "cached  run: echo 1 >/one" in again.stderr
    assert built.stdout.startswith(made["ref"])


def test_list_shows_what_is_built_and_what_could_be(built, forkgym):
    shown = forkgym("images", "list").stdout
    assert "mine" in shown
    assert "not built" in shown
    with create(image="mine") as box:
        found = {image["name"]: image for image in json.loads(forkgym("images", "list", "--json").stdout)}
        assert found["mine"]["used_by"] == [box.id]
    assert found["mine"]["state"] == "ready"
    assert found["base"]["state"] == "not built"


def test_prune_keeps_named_images_unless_told_otherwise(built, forkgym):
    forkgym("images", "prune")
    with create(image="mine") as box:
        assert forkgym("images", "prune", "--all").returncode == 0
        assert box.read_file("/one") == b"1\n"
    cleanup.wait()
    assert json.loads(forkgym("images", "prune", "--all", "--json").stdout)["names"] == 1
    assert forkgym("images", "prune", "--all").stdout == "nothing to remove\n"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_daemon_that_is_absent_is_told_before_anything_is_built(forkgym, monkeypatch):
    pytest.importorskip("docker")
    monkeypatch.setenv("DOCKER_HOST", "unix:///no/such/socket")
    Path("mine.yaml").write_text("schema: 1\nname: mine\nfrom: host\nsteps:\n  - run: echo 1 >/one\n")
    done = forkgym("images", "build", "mine.yaml", "--docker")
    assert done.returncode == 1
    assert done.stderr.startswith("error: no docker daemon answers (")
    assert "building" not in done.stderr
    gc.collect()  # docker's SDK leaves the socket of a failed connection to it; so no later test is blamed


def test_a_wrong_recipe_is_two_lines_and_exit_code_2(forkgym):
    Path("bad.yaml").write_text("schema: 1\nname: bad\nfrom: host\nstep: []\n")
    done = forkgym("images", "build", "bad.yaml")
    assert done.returncode == 2
    assert done.stderr.startswith("error: bad.yaml:4: step: unknown key; did you mean 'steps'?\n")
    assert len(done.stderr.splitlines()) == 2


def test_a_failed_step_is_an_error_with_the_end_of_its_output(forkgym):
    Path("bad.yaml").write_text("schema: 1\nname: bad\nfrom: host\nsteps: [{run: echo oh no; exit 3}]\n")
    done = forkgym("images", "build", "bad.yaml")
    assert done.returncode == 1
    assert "bad.yaml:4: the step `run: echo oh no; exit 3` failed: the command ended with exit code 3" in done.stderr
    assert "oh no\n" in done.stderr
    assert "finished layers are kept" in done.stderr
