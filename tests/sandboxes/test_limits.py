import resource

import pytest

from forkgym.errors import ConfigError
from forkgym.sandboxes.base import Limits
from forkgym.sandboxes.limits import parse_limits, parse_size, rlimits


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (4096, 4096),
        ("4096", 4096),
        ("64k", 65_536),
        ("512M", 536_870_912),
        ("1.5 GiB", 1_610_612_736),
        ("2TB", 2_199_023_255_552),
    ],
)
def test_sizes_are_binary(text, size):
    assert parse_size(text) == size


def test_absent_keys_keep_their_defaults_and_none_lifts_a_limit():
    limits = parse_limits({"memory": "256M", "cpu": 2, "disk": None, "pids": "none", "wall": 90})
    assert limits == Limits(memory=268_435_456, pids=None, cpu=2.0, disk=None, open_files=1024, wall=90.0)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("memory", "lots"),
        ("memory", "-5M"),
        ("memory", ""),
        ("memory", 0),
        ("memory", 1 << 63),
        ("memory", 1e9),
        ("memory", True),
        ("memory", "1K"),
        ("pids", 0),
        ("pids", -1),
        ("pids", 1.5),
        ("pids", "64"),
        ("pids", True),
        ("cpu", float("nan")),
        ("cpu", float("inf")),
        ("cpu", 0),
        ("cpu", -1),
        ("cpu", True),
        ("cpu", "two"),
        ("disk", float("nan")),
        ("disk", []),
        ("open_files", 3),
        ("wall", 0),
        ("wall", -1),
        ("wall", float("nan")),
        ("wall", "1h"),
    ],
)
def test_a_bad_value_is_refused_with_what_is_allowed(key, value):
    with pytest.raises(ConfigError, match=rf"'{key}' is .*allowed: .*at least"):
        parse_limits({key: value})


def test_an_unknown_key_names_the_nearest_one():
    with pytest.raises(ConfigError, match=r"'memroy'.*'memory'.*cpu, disk, memory, open_files, pids, wall"):
        parse_limits({"memroy": "1G"})


def test_rlimits_hold_memory_and_processes_only_where_no_cgroup_does():
    limits = Limits(memory=100 << 20, pids=50, disk=10 << 20, open_files=200)
    assert rlimits(limits, cgroups=True) == {"CORE": 0, "NOFILE": 200, "FSIZE": 10_485_760}
    assert rlimits(limits, cgroups=False) == {
        "CORE": 0,
        "NOFILE": 200,
        "FSIZE": 10_485_760,
        "DATA": 104_857_600,
        "NPROC": 50,
    }


def test_rlimits_leave_out_lifted_limits_and_stay_below_the_hard_limit():
    free = Limits(memory=None, pids=None, cpu=None, disk=None, open_files=None)
    assert rlimits(free, cgroups=False) == {"CORE": 0}
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    assert hard != resource.RLIM_INFINITY
    assert rlimits(Limits(open_files=hard + 1), cgroups=True)["NOFILE"] == hard
