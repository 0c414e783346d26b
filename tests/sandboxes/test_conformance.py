"""Every backend keeps the contract; the local one also for an ordinary user, when this user is root."""

import json

import pytest

from forkgym.errors import ConfigError
from forkgym.sandboxes.base import Capabilities
from forkgym.sandboxes.conformance import CASES, check, forks
from forkgym.sandboxes.errors import SandboxUnavailableError
from forkgym.sandboxes.local.backend import LocalBackend

NAMES = [case.name for case in CASES]

PROGRAM = """
import json, sys
from forkgym.sandboxes.conformance import check
from forkgym.sandboxes.local.backend import LocalBackend
report = check(LocalBackend(), echo=lambda line: sys.stderr.write(line + chr(10)))
print(json.dumps([report.passed, report.failed]))
"""


@pytest.fixture(scope="module")
def backend():
    return LocalBackend()


@pytest.fixture(scope="module")
def user_report(module_user):
    """What every case says to an ordinary user: "ok" or what went wrong."""
    done = module_user.run(PROGRAM)
    assert done.returncode == 0, done.stderr
    passed, failed = json.loads(done.stdout)
    return dict.fromkeys(passed, "ok") | failed


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_local_backend(case, backend):
    case.run(backend)


@pytest.fixture(scope="module")
def docker_backends(daemon):
    from forkgym.sandboxes.docker.backend import DockerBackend

    return {fork: DockerBackend(fork=fork) for fork in ("overlay", "commit")} | {"api": DockerBackend(via="api")}


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_docker_backend(case, docker_backends):
    case.run(docker_backends["overlay"])


# Nothing else differs between the two ways to fork. What is left out has a file that no image can hold.
@pytest.mark.parametrize("name", [case.name for case in forks.CASES if case.name != "fork_sees_latest_bytes"])
def test_docker_backend_that_forks_by_commit(name, docker_backends):
    assert check(docker_backends["commit"], [name]).failed == {}


@pytest.mark.parametrize("name", [name for name in NAMES if name != "fork_sees_latest_bytes"])
def test_docker_backend_over_the_api_of_the_daemon(name, docker_backends):
    assert check(docker_backends["api"], [name]).failed == {}


@pytest.mark.parametrize("name", NAMES)
def test_local_backend_of_an_ordinary_user(name, user_report):
    assert user_report[name] == "ok"


class BrokenBackend:
    """A backend that cannot do anything."""

    name = "broken"

    def create(self, spec, snapshot=None):
        raise SandboxUnavailableError("no machine")

    def capabilities(self):
        return Capabilities("broken", "none", "weak", False, {}, {})

    def snapshots(self):
        return []

    def delete_snapshot(self, snapshot_id):
        raise SandboxUnavailableError("no machine")

    def gc(self):
        return {}


def test_a_backend_that_keeps_nothing_fails_every_case_with_a_line_each():
    lines = []
    report = check(BrokenBackend(), echo=lines.append)
    assert not report.ok
    assert report.passed == ()
    assert list(report.failed) == NAMES
    assert lines == [f"FAIL  {name}: SandboxUnavailableError: no machine" for name in NAMES]


def test_cases_can_be_chosen_and_a_wrong_name_is_a_clear_error(capsys):
    report = check(BrokenBackend(), names=["exec_exit_code"])
    assert list(report.failed) == ["exec_exit_code"]
    assert capsys.readouterr().out == "FAIL  exec_exit_code: SandboxUnavailableError: no machine\n"
    with pytest.raises(ConfigError, match=r"'exec_exit_cod'; did you mean 'exec_exit_code'"):
        check(BrokenBackend(), names=["exec_exit_cod"])


def test_every_case_says_what_it_promises():
    assert len(NAMES) >= 30
    assert len(set(NAMES)) == len(NAMES)
    assert all(case.doc.endswith(".") for case in CASES)
