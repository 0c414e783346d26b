"""D12: what is uploaded belongs to the sandbox's user, and git agrees."""

from forkgym.sandboxes import create


def test_an_uploaded_tree_can_be_changed_by_the_user(tmp_path):
    (tmp_path / "a.py").write_text("print(1)\n")
    (tmp_path / "dir").mkdir()
    (tmp_path / "dir" / "run").write_text("#!/bin/sh\necho ran\n")
    (tmp_path / "dir" / "run").chmod(0o755)
    with create() as box:
        box.upload(tmp_path, "/work/w")
        done = box.exec("cd w && echo x >>a.py && touch dir/n && dir/run && git init -q && git status --short")
        assert (done.exit_code, done.stderr) == (0, b"")
        assert done.stdout == b"ran\n?? a.py\n?? dir/\n"
        assert box.exec("stat -c '%u %a' w/a.py w/dir/run; id -u").stdout.split()[0::2] == [b"1000"] * 2 + [b"1000"]
