"""Images of Debian packages: built from this machine's own sources, installed in a sandbox, exported as an archive."""

import io
import os
import shutil
import tarfile

import pytest

from forkgym.sandboxes import create, state
from forkgym.sandboxes.errors import ImageError
from forkgym.sandboxes.images import recipe
from forkgym.sandboxes.images.build import build
from forkgym.sandboxes.images.docker import to_docker
from forkgym.sandboxes.images.export import export_tar
from forkgym.sandboxes.images.store import open_store
from forkgym.sandboxes.local import cleanup

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("apt-get") is None, reason="Debian packages need root and apt"
)
RECIPE = """schema: 1
name: small
from: debian
steps:
  - apt: [tree]
  - copy: {data: /opt/data}
  - run: rm -r /srv; mkdir /opt/b /opt/a; echo x >/opt/b/file; ln /opt/b/file /opt/a/twin; chmod 4755 /opt/b/file
  - toolbox: {tool: /opt/tool}
"""


@pytest.fixture(scope="module")
def folder(own_state, tmp_path_factory):
    """Holds the recipe of the image ``small``, which is built; its layers are gone afterwards."""
    folder = tmp_path_factory.mktemp("recipe")
    (folder / "small.yaml").write_text(RECIPE)
    (folder / "data").mkdir()
    (folder / "data" / "a").write_text("data\n")
    (folder / "tool").mkdir()
    (folder / "tool" / "go").write_text("go\n")
    build(recipe.load(str(folder / "small.yaml")))
    yield folder
    cleanup.wait()
    open_store(own_state).prune(unused_names=True)


@pytest.fixture
def box(folder):
    with create(image="small") as box:
        yield box


def build_again(folder, **replaced):
    text = RECIPE
    for old, new in replaced.values():
        text = text.replace(old, new)
    (folder / "other.yaml").write_text(text.replace("name: small", "name: other"))
    return build(recipe.load(str(folder / "other.yaml")))


def test_it_is_a_debian_of_its_own(box):
    done = box.exec(
        "id -un; tree --version | cut -c1-6; dpkg --audit; cat /opt/data/a; ls /opt /home; . /etc/os-release"
    )
    assert done.stdout == b"agent\ntree v\ndata\n/home:\nagent\n\n/opt:\na\nb\ndata\ntool\n"
    assert done.exit_code == 0
    packages = box.exec("dpkg-query -W -f '${Package} ${Status}\\n'").stdout.decode().splitlines()
    assert {"bash install ok installed", "tree install ok installed"} <= set(packages)
    assert all(line.endswith("install ok installed") for line in packages)
    assert not any(line.startswith(("gcc ", "python3 ")) for line in packages)  # what only the host has


def test_nothing_in_it_raises_privileges_and_owners_are_kept(box):
    assert box.exec("find / -xdev -type f -perm /6000; find /usr -type f -perm /6000").stdout == b""
    assert box.exec("stat -c '%U:%G %a' /etc/passwd /var/mail /home/agent").stdout == (
        b"root:root 644\nroot:mail 2775\nagent:agent 755\n"
    )


def test_forks_of_it_are_like_those_of_any_image(box):
    box.exec("echo 1 >f")
    with box.fork()[0] as child:
        child.exec("echo 2 >f; tree --noreport . >t")
        assert (box.read_file("f"), child.read_file("t")) == (b"1\n", ".\n├── f\n└── t\n".encode())


class Pipe(io.BytesIO):
    """Takes bytes and cannot seek."""

    def seekable(self):
        return False

    def seek(self, offset: int, whence: int = 0, /) -> int:
        raise io.UnsupportedOperation("a pipe")

    def tell(self) -> int:
        raise io.UnsupportedOperation("a pipe")


def content(tar, name):
    with tar.extractfile(name) as file:
        return file.read()


@pytest.fixture(scope="module")
def archive(folder):
    pipe = Pipe()
    assert export_tar("small", pipe).startswith("small@")
    return pipe.getvalue()


def test_the_archive_holds_the_whole_tree_once(archive):
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        members = {member.name: member for member in tar}
        assert len(members) == len(tar.getmembers())
        assert content(tar, "opt/data/a") == b"data\n"
        assert content(tar, "opt/tool/go") == b"go\n"
        assert content(tar, "opt/b/file") == b"x\n"
    assert "srv" not in members
    assert {"usr/bin/tree", "usr/bin/bash", "etc/passwd", "var/lib/dpkg/status"} <= set(members)
    assert (members["bin"].linkname, members["opt/b/file"].linkname) == ("usr/bin", "opt/a/twin")
    assert (members["home/agent"].uid, members["home/agent"].gid, members["home/agent"].uname) == (1000, 1000, "")
    assert members["opt/a/twin"].mode == 0o755
    assert not any(member.ischr() or member.isblk() for member in members.values())


def test_an_image_always_gives_the_same_archive(archive, folder):
    again = io.BytesIO()
    export_tar("small", again)
    assert again.getvalue() == archive


def test_docker_gets_the_same_tree_under_its_id_and_as_latest(folder):
    docker = pytest.importorskip("docker")
    try:
        client = docker.from_env()
    except docker.errors.DockerException as error:
        pytest.skip(f"no Docker daemon answers: {error}")
    tag = to_docker("small")
    try:
        assert tag == open_store(state.state_dir()).find("small").ref.replace("small@", "forkgym/small:")
        image = client.images.get(tag)
        assert image.labels == {"forkgym.image": open_store(state.state_dir()).find("small").ref}
        assert client.images.get("forkgym/small").id == image.id
        words = ["sh", "-c", "tree -i --noreport /opt/data; id -un 1000"]
        said = client.containers.run(tag, words, remove=True, network_mode="none")
        assert said == b"/opt/data\na\nagent\n"
        assert to_docker("small") == tag
    finally:
        for name in ("forkgym/small", tag):
            client.images.remove(name, force=True)
        client.close()


def test_a_package_that_does_not_exist_is_named_with_its_step(folder):
    with pytest.raises(ImageError, match=r"other.yaml:5: the step `apt: forkgym-absent` failed: E: Unable to locate"):
        build_again(folder, package=("tree]", "forkgym-absent]"))


def test_without_a_network_the_step_is_named_and_the_layers_below_serve(folder, monkeypatch):
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # nobody listens there
    with pytest.raises(ImageError, match=r"(?s)other.yaml:5: the step `apt: sl` failed: E: Failed to fetch"):
        build_again(folder, package=("tree]", "sl]"))
    assert len(build_again(folder).layers) == 5  # all of it is there already


def test_apt_needs_an_image_with_packages(folder, tmp_path):
    (tmp_path / "h.yaml").write_text("schema: 1\nname: h\nfrom: host\nsteps: [{apt: [tree]}]\n")
    with pytest.raises(
        ImageError, match="the image below has no Debian packages; begin the recipe with `from: debian`"
    ):
        build(recipe.load(str(tmp_path / "h.yaml")))
