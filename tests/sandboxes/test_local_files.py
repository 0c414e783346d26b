"""Files of the local backend: resolved inside, of any size and name, and never the host's."""

import errno
import os
import threading
import time

import pytest

from forkgym.sandboxes import create
from forkgym.sandboxes.errors import SandboxFileError


@pytest.fixture(scope="module")
def box():
    with create("local") as sandbox:
        yield sandbox


def errno_of(call, *arguments, **options):
    with pytest.raises(SandboxFileError) as caught:
        call(*arguments, **options)
    return caught.value.errno


@pytest.mark.parametrize(
    "target", ["/etc/shadow", "../" * 30 + "etc/shadow", "/proc/1/root/etc/shadow", "/root/.bashrc"]
)
def test_links_lead_nowhere_on_the_host(box, target):
    box.exec(["ln", "-sfn", target, "/tmp/link"])
    assert errno_of(box.read_file, "/tmp/link") in (errno.ENOENT, errno.EACCES, errno.ELOOP)


def test_the_host_s_files_are_not_those_inside(box):
    box.exec("ln -sfn / /tmp/top")
    assert box.read_file("/tmp/top/etc/hostname") == box.read_file("../../../etc/hostname") == b"sandbox\n"


@pytest.mark.parametrize(
    "path", ["/proc/self/environ", "/proc/1/mem", "/proc/self/maps", "/proc/thread-self/attr/exec"]
)
def test_the_first_process_does_not_serve_its_own_entries_of_proc(box, path):
    assert errno_of(box.read_file, path) == errno.EACCES
    assert errno_of(box.write_file, path, b"x") == errno.EACCES


def test_what_is_no_regular_file_is_refused_at_once(box):
    box.exec(
        "mkfifo /tmp/fifo; mkdir -p /tmp/dir; truncate -s 10G /tmp/sparse; mkdir -p /tmp/loop; ln -sfn l /tmp/loop/l"
    )
    begin = time.monotonic()
    assert errno_of(box.read_file, "/tmp/fifo") == errno.EINVAL
    assert errno_of(box.write_file, "/tmp/fifo", b"x") in (errno.EINVAL, errno.ENXIO)
    assert errno_of(box.read_file, "/dev/zero") == errno.EINVAL
    assert errno_of(box.read_file, "/tmp/dir") == errno.EISDIR
    assert errno_of(box.read_file, "/tmp/loop/l") == errno.ELOOP
    assert errno_of(box.read_file, "/tmp/a\0b") == errno.EINVAL
    assert time.monotonic() - begin < 20


def test_a_file_too_large_to_hold_is_refused_unless_bounded():
    with create("local", limits={"disk": None}) as box:
        box.exec("truncate -s 10G sparse")
        assert errno_of(box.read_file, "sparse") == errno.EFBIG
        assert box.read_file("sparse", max_bytes=5) == bytes(5)


def test_a_file_that_turns_into_a_link_again_and_again_never_shows_the_host(box):
    box.exec("cd /tmp && while :; do echo inside > r; ln -sfn /etc/shadow r; rm r; done >/dev/null 2>&1 & sleep 0.1")
    seen = set()
    for _ in range(200):
        try:
            seen.add(box.read_file("/tmp/r"))
        except SandboxFileError as error:
            seen.add(error.errno)
    assert seen <= {b"", b"inside\n", errno.ENOENT, errno.EACCES}
    box.exec("pkill -f 'ln -sfn' ; pkill bash")


def test_writing(box, tmp_path):
    outside = tmp_path / "outside"
    box.exec(["ln", "-sfn", str(outside), "/tmp/dangling"])
    assert errno_of(box.write_file, "/tmp/dangling", b"x") == errno.ENOENT
    assert not outside.exists()
    box.exec("mkdir -p /tmp/real; ln -sfn real /tmp/parent; mkdir -p /tmp/is-dir")
    box.write_file("/tmp/parent/new/deep", b"", mode=0o600)
    assert box.exec("stat -c '%s %a %U' /tmp/real/new/deep").stdout == b"0 600 agent\n"
    assert errno_of(box.write_file, "/tmp/is-dir", b"x") == errno.EISDIR
    assert errno_of(box.write_file, "/usr/bin/x", b"x") == errno.EACCES
    assert errno_of(box.write_file, "/proc/sys/kernel/hostname", b"x") in (errno.EACCES, errno.EPERM)


def test_a_limit_of_the_sandbox_bounds_what_is_written_for_it():
    with create("local", limits={"disk": "1M"}) as box:
        assert box.exec("head -c 2000000 /dev/zero > big").exit_code != 0
        assert [entry.size for entry in box.list_dir(".")] == [1048576]


def test_names_of_any_bytes(box):
    names = ["new\nline", "-rf", "ü", "x" * 255, os.fsdecode(b"raw\xff"), " space ", "*"]
    for name in names:
        box.write_file(f"/tmp/names/{name}", name.encode(errors="surrogateescape"))
    assert [entry.name for entry in box.list_dir("/tmp/names")] == sorted(names)
    child = box.fork()[0]
    for name in names:
        assert child.read_file(f"/tmp/names/{name}") == name.encode(errors="surrogateescape")
    child.close()
    assert errno_of(box.write_file, "/tmp/" + "x" * 256, b"") == errno.ENAMETOOLONG


def test_trees_go_in_and_come_out(box, tmp_path):
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "sub" / "empty").mkdir(parents=True)
    (source / "run.sh").write_bytes(b"#!/bin/sh\necho ran\n")
    (source / "run.sh").chmod(0o755)
    (source / "sub" / "link").symlink_to("../run.sh")
    (source / "sub" / "out").symlink_to("/etc/shadow")
    box.upload(source, "up")
    assert (
        box.exec("./up/sub/link; echo x >> up/run.sh; touch up/sub/empty/n; stat -c %U up/sub").stdout
        == b"ran\nagent\n"
    )
    box.exec("mkfifo up/fifo")
    box.download("up", target)
    assert sorted(str(path.relative_to(target)) for path in target.rglob("*")) == [
        "run.sh",
        "sub",
        "sub/empty",
        "sub/empty/n",
    ]
    assert (target / "run.sh").stat().st_mode & 0o777 == 0o755
    assert errno_of(box.upload, "/dev/zero", "zero") == errno.EINVAL


def test_an_error_names_the_file_of_the_side_where_it_was(box, tmp_path):
    for call, number, name in (
        (lambda: box.upload(tmp_path / "absent", "x"), errno.ENOENT, tmp_path / "absent"),
        (lambda: box.download("/etc/passwd", tmp_path / "no" / "x"), errno.ENOENT, tmp_path / "no" / "x"),
        (lambda: box.download("/no", tmp_path / "x"), errno.ENOENT, "/no"),
    ):
        with pytest.raises(SandboxFileError) as caught:
            call()
        assert (caught.value.errno, caught.value.filename) == (number, str(name))


def test_files_from_many_threads(box):
    failures = []

    def work(number):
        data = bytes([number]) * (100_000 + number)
        for turn in range(10):
            box.write_file(f"/tmp/threads/{number}-{turn}", data)
            if box.read_file(f"/tmp/threads/{number}-{turn}") != data:
                failures.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(box.list_dir("/tmp/threads")) == 80
