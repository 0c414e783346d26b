"""Cases of file access: sizes, modes, owners, and that no path leads out of the sandbox."""

from __future__ import annotations

import errno
import hashlib
import tempfile
import uuid
from pathlib import Path

from forkgym.sandboxes.base import Backend, Limits, Sandbox, SandboxSpec
from forkgym.sandboxes.conformance.expect import case, equal, output, raises, true
from forkgym.sandboxes.errors import SandboxFileError


def _number(box: Sandbox, path: str) -> int | None:
    """The errno of reading a path; ``None`` if it can be read."""
    try:
        box.read_file(path, max_bytes=4096)
    except SandboxFileError as error:
        return error.errno
    return None


@case
def write_read_roundtrip_sizes(backend: Backend) -> None:
    """Files of any size and any bytes arrive whole, owned by the user, with the mode given and parents made."""
    pattern = b'it\'s "quoted" \0 $x `y` \\ \n \xff'
    with backend.create(SandboxSpec()) as box:
        for size in (0, 1, 131_071, 131_072, 2_100_000, 20_000_000):
            data = (pattern * (size // len(pattern) + 1))[:size]
            box.write_file("/work/new/dir/file", data)
            found = output(box, "sha256sum /work/new/dir/file").split()[0].decode()
            equal(f"sha256 of {size} bytes", found, hashlib.sha256(data).hexdigest())
            true(f"{size} bytes come back changed", box.read_file("/work/new/dir/file") == data)
        box.write_file("relative", b"x")
        equal("a relative path lies in the working directory", output(box, "cat /work/relative"), b"x")
        box.write_file("/work/run", b"#!/bin/sh\necho ran\n", mode=0o755)
        equal("an executable", output(box, "/work/run; stat -c %a /work/run /work/new/dir/file"), b"ran\n755\n644\n")
        equal("owner", output(box, "find /work ! -uid $(id -u)"), b"")


@case
def read_file_never_leaves(backend: Backend) -> None:
    """No link, ``..`` chain or /proc path reads a byte of the host."""
    token = uuid.uuid4().hex
    with tempfile.TemporaryDirectory() as folder, backend.create(SandboxSpec()) as box:
        secret = Path(folder, "secret")
        secret.write_text(token)
        output(box, f"ln -s {secret} absolute; ln -s {'../' * 12}{str(secret)[1:]} dots; ln -s / root")
        output(box, "ln -s /proc/self/root self; ln -s /proc/1/root one; ln -s /proc/1/cwd cwd")
        tries = ["absolute", "dots", f"root{secret}", f"self{secret}", f"one{secret}", f"cwd/{'../' * 12}{secret}"]
        tries += ["../" * 12 + str(secret), f"/proc/1/root{secret}", f"/proc/self/root{secret}", str(secret)]
        tries += ["/proc/self/environ", "/proc/1/environ", "/proc/1/mem", "/proc/self/fd/0", "/proc/self/fd/3"]
        for path in tries:
            try:
                data = box.read_file(path, max_bytes=1 << 20)
            except SandboxFileError:
                continue
            true(f"{path} shows the host's bytes", token.encode() not in data)
        listing = [path for path in ("root", "self", "one") if _lists(box, f"{path}{folder}")]
        equal("directories of the host that can be listed", listing, [])


def _lists(box: Sandbox, path: str) -> bool:
    try:
        return any(entry.name == "secret" for entry in box.list_dir(path))
    except SandboxFileError:
        return False


@case
def read_special_files_refused(backend: Backend) -> None:
    """What is not a regular file is an error, never a hang; a limit bounds what is read."""
    with backend.create(SandboxSpec()) as box:
        output(box, "mkfifo fifo; mkdir dir; truncate -s 900M sparse; printf 12345 >five; ln -s loop loop")
        for path in ("fifo", "dir", "/dev/zero", "/dev/null", "/dev/stdin"):
            true(f"{path} was read", _number(box, path) is not None)
        equal("absent", _number(box, "absent"), errno.ENOENT)
        equal("below a file", _number(box, "five/six"), errno.ENOTDIR)
        equal("a link to itself", _number(box, "loop"), errno.ELOOP)
        equal("a file of exactly the limit", box.read_file("five", max_bytes=5), b"12345")
        equal("the start of a huge file", box.read_file("sparse", max_bytes=1000), bytes(1000))


@case
def write_through_dangling_link(backend: Backend) -> None:
    """Writing follows links inside the sandbox only; the host is untouched and failures carry their errno."""
    with tempfile.TemporaryDirectory() as folder, backend.create(SandboxSpec()) as box:
        output(box, f"ln -s {folder}/made link; ln -s {folder} parent; mkdir dir; mkfifo fifo; ln -s /work/dir inner")
        output(box, "mkdir -m 555 shut")
        for path in ("link", "parent/made", f"{'../' * 12}{folder}/made", f"/proc/1/root{folder}/made"):
            try:
                box.write_file(path, b"x")
            except SandboxFileError:
                continue
        equal("made on the host", list(Path(folder).iterdir()), [])
        box.write_file("inner/file", b"inside")
        equal("through an inner link", output(box, "cat dir/file"), b"inside")
        for path, number in (("dir", errno.EISDIR), ("dir/file/below", errno.ENOTDIR), ("shut/file", errno.EACCES)):
            error = raises(f"writing {path}", SandboxFileError, lambda path=path: box.write_file(path, b"x"))
            equal(f"errno of {path}", getattr(error, "errno", None), number)
        for path in ("fifo", "/dev/null", "/proc/1/mem", "/proc/sys/kernel/hostname"):
            raises(f"writing {path}", SandboxFileError, lambda path=path: box.write_file(path, b"x"))
        box.write_file("dir/file", b"")
        equal("an empty file", box.read_file("dir/file"), b"")


@case
def write_beyond_the_disk_limit(backend: Backend) -> None:
    """What the owner writes counts, too: a file beyond the limit ``disk`` is refused, and smaller ones are not."""
    with backend.create(SandboxSpec(limits=Limits(disk=2 << 20))) as box, tempfile.NamedTemporaryFile() as large:
        large.truncate(3 << 20)
        for name, call in (
            ("writing", lambda: box.write_file("large", bytes(3 << 20))),
            ("uploading", lambda: box.upload(large.name, "large")),
        ):
            error = raises(f"{name} 3 MiB", SandboxFileError, call)
            equal("errno", getattr(error, "errno", None), errno.EDQUOT)
        for _ in range(4):
            box.write_file("small", bytes(1 << 20))  # it takes the place of the one before
        equal("the last one", len(box.read_file("small")), 1 << 20)
        equal("a command", output(box, "wc -c <small").strip(), b"1048576")


@case
def list_dir(backend: Backend) -> None:
    """A listing is sorted and says kind, size and mode; links are not followed, odd names are kept."""
    with backend.create(SandboxSpec()) as box:
        output(box, "mkdir box; cd box; printf 123 >b; chmod 640 b; mkdir a; ln -s /etc c; mkfifo d; touch -- '-x y'")
        found = [(entry.name, entry.kind) for entry in box.list_dir("/work/box")]
        equal("entries", found, [("-x y", "file"), ("a", "dir"), ("b", "file"), ("c", "link"), ("d", "other")])
        entry = box.list_dir("box")[2]
        equal("size and mode", (entry.size, oct(entry.mode & 0o7777)), (3, "0o640"))
        equal("empty", box.list_dir("box/a"), [])
        error = raises("listing a file", SandboxFileError, lambda: box.list_dir("box/b"))
        equal("errno of a file", getattr(error, "errno", None), errno.ENOTDIR)
        error = raises("listing nothing", SandboxFileError, lambda: box.list_dir("absent"))
        equal("errno of nothing", getattr(error, "errno", None), errno.ENOENT)
        output(box, r"touch $'box/a/new\nline' $'box/a/\xff'")
        equal("odd names", [entry.name for entry in box.list_dir("box/a")], ["new\nline", "\udcff"])


@case
def upload_owned_by_user(backend: Backend) -> None:
    """An uploaded tree belongs to the sandbox's user, who can change it; modes and links are kept."""
    with tempfile.TemporaryDirectory() as folder, backend.create(SandboxSpec()) as box:
        tree = Path(folder, "tree")
        (tree / "sub" / "empty").mkdir(parents=True)
        (tree / "tool.sh").write_text("#!/bin/sh\necho tool\n")
        (tree / "tool.sh").chmod(0o750)
        (tree / "sub" / "data").write_bytes(b"\0\xff" * 100_000)
        (tree / "sub" / "closed").write_text("x")
        (tree / "sub" / "closed").chmod(0o600)
        (tree / "link").symlink_to("sub/data")
        box.upload(tree, "/work/up")
        equal(
            "runs",
            output(box, "up/tool.sh; echo x >>up/tool.sh; touch up/sub/new; stat -c %a up/tool.sh"),
            b"tool\n750\n",
        )
        equal("owners", output(box, "find up ! -uid $(id -u)"), b"")
        equal(
            "names",
            output(box, "cd up; find . | sort"),
            b".\n./link\n./sub\n./sub/closed\n./sub/data\n./sub/empty\n./sub/new\n./tool.sh\n",
        )
        equal("a link stays one", output(box, "readlink up/link; stat -c %a up/sub/closed"), b"sub/data\n600\n")
        box.upload(tree / "tool.sh", "/work/single/file.sh")
        equal("one file", output(box, "single/file.sh"), b"tool\n")
        raises("an absent source", OSError, lambda: box.upload(tree / "absent", "/work/absent"))


@case
def download_tree(backend: Backend) -> None:
    """A download gives files and directories with their bytes and modes, and follows neither links nor devices."""
    with tempfile.TemporaryDirectory() as folder, backend.create(SandboxSpec()) as box:
        output(box, "mkdir -p out/sub; printf 'a\\0b' >out/sub/bytes; printf x >out/tool; chmod 755 out/tool")
        output(box, "ln -s /etc/passwd out/link; ln -s /etc out/etc; mkfifo out/fifo")
        here = Path(folder, "here")
        box.download("out", here)
        equal("bytes", (here / "sub" / "bytes").read_bytes(), b"a\0b")
        equal("mode", (here / "tool").stat().st_mode & 0o777, 0o755)
        for name in ("link", "etc", "fifo"):
            path = here / name
            true(f"{name} was followed", path.is_symlink() or not path.exists())
        box.download("out/sub/bytes", Path(folder, "one"))
        equal("one file", Path(folder, "one").read_bytes(), b"a\0b")
        raises("a link itself", SandboxFileError, lambda: box.download("out/fifo", Path(folder, "fifo")))
        raises("nothing there", SandboxFileError, lambda: box.download("absent", Path(folder, "absent")))


CASES = (
    write_read_roundtrip_sizes,
    read_file_never_leaves,
    read_special_files_refused,
    write_through_dangling_link,
    write_beyond_the_disk_limit,
    list_dir,
    upload_owned_by_user,
    download_tree,
)
