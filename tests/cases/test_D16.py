"""D16: names like whiteouts, odd names, attributes, deleted open files, sparse files and links survive a fork."""

from forkgym.sandboxes import create

SETUP = r"""
mkdir -p w/.wh.sub w/sub w/.wh..wh..opq && cd w && touch .wh.keep keep sub/in $'new\nline' $'\xff' -- -rf
touch $(printf 'n%.0s' $(seq 255)) && truncate -s 1M sparse && ln keep twin && ln -s nowhere link
python3 -c "import os; os.setxattr('keep', 'user.note', b'noted'); os.setxattr('sub', 'user.note', b'dir')"
exec 9>gone; echo text >&9; rm gone
"""
LIST = "cd /work/w; find . -printf '%p %n %s %y %m\\n' | sort"
NOTES = "import os; print(*(os.getxattr(f'/work/w/{name}', 'user.note') for name in ('keep', 'twin', 'sub')))"


def test_a_fork_has_the_same_listing():
    with create() as box:
        assert box.shell().run(SETUP).exit_code == 0
        before = box.exec(LIST).stdout
        for name in (b"./.wh.sub ", b"./.wh.keep ", b"./keep 2 ", b"./sub/in ", b"line 1 0 f ", b"./-rf ", b"n" * 255):
            assert name in before
        with box.fork()[0] as child, child.fork()[0] as grandchild:
            for one in (child, grandchild, box):
                assert one.exec(LIST).stdout == before
                assert one.exec(["python3", "-c", NOTES]).stdout == b"b'noted' b'noted' b'dir'\n"
            assert grandchild.exec("stat -c %b w/sparse").stdout == b"0\n"
            assert grandchild.exec("cd w; echo x >keep; cat twin").stdout in (b"x\n", b"")
            assert box.exec("cat w/keep").stdout == b""
        assert box.shell().run("echo more >&9 && echo fine").stdout == b"fine\n"
