"""Every backend holds under attack; the local one also for an ordinary user, when this user is root."""

import json

import pytest

from forkgym.errors import ConfigError
from forkgym.sandboxes.conformance import SUITES, TORTURE, check
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
