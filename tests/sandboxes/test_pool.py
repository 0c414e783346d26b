"""A pool: fresh sandboxes, never more than allowed, waiting instead of failure, and nothing left behind."""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from forkgym.errors import ConfigError
from forkgym.sandboxes import backend, create, state
from forkgym.sandboxes.base import Limits, SandboxSpec
from forkgym.sandboxes.errors import SandboxDeadError, SandboxTimeoutError
from forkgym.sandboxes.local.sandbox import LocalSandbox
from forkgym.sandboxes.pool import Pool
from forkgym.sandboxes.slots import Slots, release

OWNER = """
import sys
from forkgym.sandboxes.pool import Pool
pool = Pool(size=1, max_alive=2, share="owners")
with pool.take() as box:
    print(box.id, flush=True)
    sys.stdin.read()
"""

FORKED = """
import os, sys
from forkgym.errors import ForkGymError
from forkgym.sandboxes.pool import Pool
with Pool(size=1) as pool, pool.take() as box:
    child = os.fork()
    if child == 0:
        try:
            with pool.take(timeout=5):
                print("took one", flush=True)
        except ForkGymError as error:
            print(error, flush=True)
        pool.close()
        os._exit(0)
    os.waitpid(child, 0)
    print(box.exec("echo alive").stdout.decode().strip(), flush=True)
"""


def wait_until(condition):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "waited 20 s in vain"
        time.sleep(0.01)


def start_owner():
    return subprocess.Popen([sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def id_of(owner):
    assert owner.stdout is not None
    return owner.stdout.readline().strip()


def boxes():
    return {path.name for path in (state.state_dir() / "boxes").iterdir()}


def test_each_taker_has_a_fresh_sandbox_and_all_end():
    before = boxes()
    with Pool({"limits": {"pids": 64}}, size=1) as pool:
        seen = set()
        for _ in range(4):
            with pool.take() as box:
                assert box.spec.limits == Limits(pids=64)
                assert box.list_dir("/work") == []
                box.write_file("/work/left", b"x")
                seen.add(box.id)
        assert len(seen) == 4
        wait_until(lambda: pool.stats().warm == 1)
        last = pool.stats()
    assert (last.created, last.taken, last.alive, last.broken, last.failed) == (5, 0, 1, 0, 0)
    assert (pool.stats().warm, pool.stats().alive) == (0, 0)
    wait_until(lambda: boxes() <= before)


def test_a_spec_and_a_snapshot_are_honoured():
    with create() as box:
        box.write_file("/work/here", b"kept")
        kept = box.snapshot()
    with Pool(SandboxSpec(workdir="/elsewhere"), size=1) as pool, pool.take() as box:
        assert box.exec("pwd").stdout == b"/elsewhere\n"
    with Pool({"snapshot": kept.id}, size=1) as pool, pool.take() as box:
        assert box.read_file("/work/here") == b"kept"
    backend("local").delete_snapshot(kept.id)


def test_many_threads_wait_their_turn_and_all_are_served():
    using, most, lock = 0, 0, threading.Lock()
    with Pool(size=2, max_alive=3) as pool:

        def work(number):
            nonlocal using, most
            with pool.take(timeout=120) as box:
                with lock:
                    using += 1
                    most = max(most, using, pool.stats().alive)
                said = box.exec(f"echo {number}").stdout
                with lock:
                    using -= 1
            return int(said)

        with ThreadPoolExecutor(12) as threads:
            assert list(threads.map(work, range(24))) == list(range(24))
    assert 1 <= most <= 3
    assert pool.stats().created >= 24


def test_no_room_is_a_timeout_and_room_is_given_when_one_comes_back():
    with Pool(size=1) as pool:
        match = r"within 0\.05 s: 1 of this pool are in use.*may have 1"
        with pool.take(), pytest.raises(SandboxTimeoutError, match=match), pool.take(timeout=0.05):
            pass
        with pool.take(timeout=60) as box:
            assert box.alive


def test_a_sandbox_that_died_while_warm_is_replaced():
    with Pool(size=1) as pool:
        dead = pool._warm[0]
        assert isinstance(dead, LocalSandbox)
        os.kill(dead._pid, signal.SIGKILL)
        wait_until(lambda: not dead.alive)
        with pool.take() as box:
            assert box.id != dead.id
            assert box.exec(["true"]).ok
        assert pool.stats().broken == 1


def test_a_failure_to_start_is_named_to_who_waits():
    with create() as box:
        kept = box.snapshot()
    with Pool({"snapshot": kept.id}, size=1) as pool:
        backend("local").delete_snapshot(kept.id)
        with pool.take():
            pass
        match = rf"the last attempt to start one failed: .*{kept.id}"
        with pytest.raises(SandboxTimeoutError, match=match), pool.take(timeout=0.5):
            pass
        assert pool.stats().failed >= 1
        wait_until(lambda: pool.stats().alive == 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 0}, "1 <= size <= max_alive"),
        ({"size": 1.5}, "1 <= size <= max_alive"),
        ({"size": 4, "max_alive": 3}, "1 <= size <= max_alive"),
        ({"backend": "locl"}, "did you mean 'local'"),
        ({"spec": {"limits": {"memroy": "1G"}}}, "did you mean 'memory'"),
        ({"spec": {"backend": "local"}}, r"Pool\(spec, backend=...\)"),
        ({"share": "../up"}, "name of shared slots"),
        ({"share": ""}, "name of shared slots"),
    ],
)
def test_wrong_options_raise_at_once(options, message):
    before = boxes()
    with pytest.raises(ConfigError, match=message):
        Pool(**options)
    wait_until(lambda: boxes() <= before)


@pytest.mark.parametrize("timeout", [-1, float("nan")])
def test_a_wrong_timeout_is_refused(timeout):
    with Pool(size=1) as pool:
        with pytest.raises(ConfigError, match="timeout"), pool.take(timeout=timeout):
            pass
        assert pool.stats().taken == 0


def test_close_ends_waiting_leaves_what_is_in_use_and_may_be_repeated():
    pool = Pool(size=1)
    with pool.take() as box, ThreadPoolExecutor(1) as threads:

        def wait():
            with pool.take(timeout=120):
                pass

        waiting = threads.submit(wait)
        pool.close()
        with pytest.raises(SandboxDeadError, match="pool is closed"):
            waiting.result()
        assert box.exec(["true"]).ok
    assert not box.alive
    pool.close()
    assert pool.stats().alive == 0
    with pytest.raises(SandboxDeadError, match="pool is closed"), pool.take():
        pass


def test_an_error_of_the_taker_still_ends_the_sandbox():
    with Pool(size=1) as pool:
        with pytest.raises(ZeroDivisionError), pool.take() as box:
            raise ZeroDivisionError
        wait_until(lambda: not box.alive)
        assert pool.stats().taken == 0


def test_a_forked_child_is_refused_and_the_parent_goes_on():
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=100, check=True)
    first, second = done.stdout.splitlines()
    assert "belongs to the process that made it" in first
    assert second == "alive"


def test_containers_are_kept_warm_too(daemon):
    with Pool(size=1, backend="docker") as pool:
        with pool.take() as box:
            assert (box.backend, box.exec("echo on").stdout) == ("docker", b"on\n")
        with pool.take(timeout=200) as other:
            assert other.id != box.id
            assert not box.alive


def test_a_third_owner_gets_the_place_of_two_that_were_killed():
    """D11, D13: two places in all; kill -9 of both owners gives them back, and their sandboxes are gone."""
    owners = [start_owner() for _ in range(2)]
    theirs = {id_of(owner) for owner in owners}
    assert len(theirs) == 2
    assert theirs <= boxes()
    with Pool(size=1, max_alive=2, share="owners") as pool:
        with pytest.raises(SandboxTimeoutError, match="less what others hold"), pool.take(timeout=0.3):
            pass
        for owner in owners:
            owner.kill()
            owner.communicate()
        with pool.take(timeout=60) as box:
            assert box.exec(["true"]).ok
        backend("local").gc()
        assert not theirs & boxes()
    places = Slots("owners", 2)
    free = [slot for slot in (places.claim() for _ in range(3)) if slot is not None]
    assert len(free) == 2
    for slot in free:
        release(slot)
