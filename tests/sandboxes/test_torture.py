"""Every backend holds under attack; the local one also for an ordinary user, when this user is root."""

import json

import pytest

from forkgym.errors import ConfigError
from forkgym.sandboxes.conformance import SUITES, TORTURE, check
from forkgym.sandboxes.conformance.torture import channels, processes
from forkgym.sandboxes.local.backend import LocalBackend

NAMES = [case.name for case in TORTURE]

PROGRAM = """
import json, sys
from forkgym.sandboxes.conformance import check
from forkgym.sandboxes.local.backend import LocalBackend
report = check(LocalBackend(), echo=lambda line: sys.stderr.write(line + chr(10)), suite="torture")
print(json.dumps([report.passed, report.failed]))
"""


@pytest.fixture(scope="module")
def user_report(module_user):
    """What every case says to an ordinary user: "ok" or what went wrong."""
    done = module_user.run(PROGRAM, timeout=280)
    assert done.returncode == 0, done.stderr
    passed, failed = json.loads(done.stdout)
    return dict.fromkeys(passed, "ok") | failed


@pytest.mark.parametrize("case", TORTURE, ids=NAMES)
def test_local_backend(case):
    case.run(LocalBackend())


@pytest.fixture(scope="module")
def docker_backend(daemon):
    from forkgym.sandboxes.docker.backend import DockerBackend

    return DockerBackend(fork="overlay")


@pytest.mark.parametrize("case", TORTURE, ids=NAMES)
def test_docker_backend(case, docker_backend):
    case.run(docker_backend)


# What the way to the sandbox has a part in: who is killed, what is told, what is opened, who is root. No whole disk is
# held where forks are commits, no image holds a tree that is deeper than a path can be long, and the others take long.
OVER_API = [case.name for case in (*processes.CASES, *channels.CASES)] + [
    *("memory_bomb", "memory_bomb_of_root", "memory_filled_by_files", "descriptor_bomb", "pipe_bomb"),
    *("output_flood", "output_flood_in_the_shell", "output_of_a_daemon", "binary_output", "huge_arguments"),
    *("racing_links", "special_files", "files_of_proc", "odd_names", "frozen_while_written"),
    *("kernel_settings", "device_nodes", "root_inside_is_not_root_outside", "chroot_escape", "first_process_is_closed"),
]


@pytest.mark.parametrize("name", OVER_API)
def test_docker_backend_over_the_api_of_the_daemon(name, daemon):
    from forkgym.sandboxes.docker.backend import DockerBackend

    assert check(DockerBackend(via="api"), [name], suite="torture").failed == {}


@pytest.mark.parametrize("name", NAMES)
def test_local_backend_of_an_ordinary_user(name, user_report):
    assert user_report[name] == "ok"


def test_there_are_enough_attacks_and_each_says_what_is_due():
    assert len(NAMES) >= 60
    every = [case.name for cases in SUITES.values() for case in cases]
    assert len(set(every)) == len(every)
    assert all(case.doc.endswith(".") for case in TORTURE)


def test_an_unknown_suite_is_a_clear_error():
    with pytest.raises(ConfigError, match=r"'tortur'; did you mean 'torture'"):
        check(LocalBackend(), suite="tortur")
