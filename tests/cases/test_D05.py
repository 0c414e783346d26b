"""D05: a fork has the newest bytes of its parent, everywhere in the file system."""

from concurrent.futures import ThreadPoolExecutor

from forkgym.sandboxes import create

WRITE = r"""mkdir -p /w && head -c 50000000 /dev/urandom > /w/big && sha256sum /w/big > /w/sum &&
printf '#!/bin/sh\necho ok\n' > /usr/local/bin/newtool && chmod +x /usr/local/bin/newtool &&
rm -f /etc/issue && ln -s /w/big /w/l && mkfifo /w/p && chmod 640 /w/sum && echo s > /dev/shm/s"""
VERIFY = """newtool; sha256sum -c /w/sum >/dev/null &&
test ! -e /etc/issue && readlink /w/l && stat -c '%a %F' /w/sum /w/p"""


def test_children_have_what_was_just_written_and_only_files():
    with create() as box, ThreadPoolExecutor(2) as pool:
        done = box.exec(WRITE, user="root", timeout=60)
        assert done.ok, done.stderr
        box.exec("(setsid sleep 1000 >/dev/null 2>&1 &)")
        for forked in (pool.submit(box.fork), pool.submit(box.fork)):
            with forked.result()[0] as child:
                result = child.exec(VERIFY, user="root", timeout=60)
                assert result.stdout == b"ok\n/w/big\n640 regular file\n644 fifo\n"
                assert child.exec("ls /dev/shm").stdout == b""
                assert child.exec(["pgrep", "-c", "sleep"]).stdout == b"0\n"
