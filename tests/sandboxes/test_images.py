"""Images over this machine's own system: layers, caching, names, pruning, and what a failed build leaves."""

import base64
import ensurepip
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from forkgym.sandboxes import create, state
from forkgym.sandboxes.base import SandboxSpec
from forkgym.sandboxes.errors import ImageError, RecipeError
from forkgym.sandboxes.images import inventory, recipe
from forkgym.sandboxes.images.build import build
from forkgym.sandboxes.images.export import export_tar
from forkgym.sandboxes.images.store import open_store
from forkgym.sandboxes.local import cleanup
from forkgym.sandboxes.local.backend import LocalBackend


@pytest.fixture
def store(own_state):
    """The store of this run, with nothing more in it afterwards."""
    store = open_store(own_state)
    before = contents(store)
    yield store
    prune(store, unused_names=True)
    assert contents(store) <= before


def contents(store):
    """What stands in a store. Sandboxes of other tests may still use a layer."""
    return {*store.root.glob("layers/*"), *store.root.glob("scratch/*"), *store.root.glob("locks/*")}


def prune(store, **options):
    cleanup.wait()  # closed sandboxes give their leases up in the background
    return store.prune(**options)


@pytest.fixture
def make(tmp_path, store):
    """``make(name, *steps, base="host")`` builds an image; returns it and what was reported."""

    def make(name, *steps, base="host"):
        text = yaml.safe_dump({"schema": 1, "name": name, "from": base, "steps": list(steps)})
        (tmp_path / f"{name}.yaml").write_text(text)
        said = []
        chain = build(recipe.load(str(tmp_path / f"{name}.yaml")), lambda title, what: said.append((title, what)))
        return chain, said

    return make


def layers(store):
    return {path.name for path in (store.root / "layers").iterdir()}


def test_sandboxes_start_with_what_the_steps_made_and_share_it_read_only(make, tmp_path):
    (tmp_path / "app" / "deep").mkdir(parents=True)
    (tmp_path / "app" / "deep" / "tool").write_text("#!/bin/sh\necho works\n")
    (tmp_path / "app" / "deep" / "tool").chmod(0o4755)
    (tmp_path / "app" / "link").symlink_to("deep/tool")
    chain, _ = make(
        "mine",
        {"copy": {"app": "/opt/app", "app/deep/tool": "/usr/local/bin/"}},
        {"run": "echo made >/opt/made; rm /opt/app/link; chmod u+s /opt/app/deep/tool; rm -r /srv"},
    )
    assert [layer.step for layer in chain.layers][-1] == "copy: app → /opt/app, app/deep/tool → /usr/local/bin/"
    with create(image="mine") as one, create(image="mine", user="root") as two:
        assert one.exec("stat -c '%a %U' /opt/app/deep/tool; tool; cat /opt/made; ls /opt/app /srv").stdout == (
            b"755 root\nworks\nmade\n/opt/app:\ndeep\n"
        )
        assert one.exec("echo x >/opt/made").exit_code == 1
        assert two.exec("echo changed >/opt/made").ok
        assert one.read_file("/opt/made") == b"made\n"
        with two.fork()[0] as child:
            assert child.read_file("/opt/made") == b"changed\n"
            assert child.spec.image == chain.ref


def test_a_step_has_no_network_and_runs_as_root_inside(make):
    make("net", {"run": "cat /proc/net/dev | grep -c : >/devices; id -u >/who; ls -A /mnt /root >/seen"})
    with create(image="net", user="root") as box:
        assert box.read_file("/devices") == b"1\n"  # the loopback
        assert box.read_file("/who") == b"0\n"
        assert box.read_file("/seen") == b"/mnt:\n\n/root:\n"


def test_layers_are_built_once_and_anew_from_the_first_change_on(make, tmp_path):
    (tmp_path / "data").write_text("1")
    steps = [{"run": "echo a >/a"}, {"copy": {"data": "/data"}}, {"run": "cat /data >/b"}]
    first, said = make("mine", *steps)
    assert [what for _, what in said] == ["building", "built"] * 3
    again, said = make("mine", *steps)
    assert (again, [what for _, what in said]) == (first, ["cached"] * 3)
    (tmp_path / "data").write_text("2")
    changed, said = make("mine", *steps)
    assert [what for _, what in said] == ["cached", "building", "built", "building", "built"]
    assert changed.layers[2] == first.layers[2]
    assert {layer.id for layer in changed.layers[:2]}.isdisjoint(layer.id for layer in first.layers[:2])
    with create(image="mine") as new, create(image=first.ref) as old:
        assert (new.read_file("/b"), old.read_file("/b")) == (b"2", b"1")


def test_an_image_can_stand_on_another(make):
    make("lower", {"run": "echo low >/low; mkdir /both; echo 1 >/both/one"})
    make("upper", {"run": "echo 2 >/both/two; rm /low"}, base="lower")
    with create(image="upper") as box:
        assert box.exec("ls /both; test -e /low").stdout == b"one\ntwo\n"
    with pytest.raises(ImageError, match="no image 'absent'; built: host, lower, upper"):
        make("third", {"run": "true"}, base="absent")


def test_a_toolbox_is_shown_but_cannot_be_changed_even_by_root(make, tmp_path):
    (tmp_path / "agent" / "bin").mkdir(parents=True)
    (tmp_path / "agent" / "bin" / "go").write_text("#!/bin/sh\necho go\n")
    (tmp_path / "agent" / "bin" / "go").chmod(0o700)
    make("boxed", {"toolbox": {"agent": "/usr/local/agent"}}, {"run": "/usr/local/agent/bin/go >/said"})
    shutil.rmtree(tmp_path / "agent")  # the image has its own copy
    with create(image="boxed", user="root") as box:
        assert box.read_file("/said") == b"go\n"
        assert b"Read-only file system" in box.exec("rm /usr/local/agent/bin/go").stderr
        with box.fork()[0] as child:
            assert child.exec("/usr/local/agent/bin/go", user="root").stdout == b"go\n"


def test_a_failed_step_is_named_and_leaves_only_the_layers_below(make, store):
    with pytest.raises(ImageError, match=r"bad.yaml:\d+: the step `run: echo oh no; exit 3` failed: .* code 3\noh no"):
        make("bad", {"run": "echo kept >/kept"}, {"run": "echo oh no; exit 3"})
    assert len(layers(store)) == 1
    assert store.names() == []
    _, said = make("bad", {"run": "echo kept >/kept"}, {"run": "true"})
    assert said[0] == ("run: echo kept >/kept", "cached")


def test_a_copy_that_leads_out_of_the_image_stays_inside(make):
    make(
        "hostile", {"run": "ln -s /proc/1/root/tmp /out; ln -s ../../../../tmp /up"}, {"copy": {"hostile.yaml": "/up/"}}
    )
    with create(image="hostile") as box:
        assert box.exec("ls /tmp").stdout == b"hostile.yaml\n"
    assert not Path("/tmp/hostile.yaml").exists()


def test_the_name_of_a_library_recipe_is_refused_to_others(make):
    with pytest.raises(RecipeError, match="'base' belongs to a recipe of the library"):
        make("base", {"run": "true"})


BUILDER = """
import sys
from forkgym.sandboxes.images import recipe
from forkgym.sandboxes.images.build import build
chain = build(recipe.load(sys.argv[1]), lambda title, what: print(what, flush=True))
print(chain.ref)
"""


def builder(path, **options):
    return subprocess.Popen([sys.executable, "-c", BUILDER, path], stdout=subprocess.PIPE, text=True, **options)


def test_two_who_build_the_same_layer_build_it_once(tmp_path, store):
    path = tmp_path / "same.yaml"
    path.write_text("schema: 1\nname: same\nfrom: host\nsteps: [{run: 'sleep 0.3; date +%N >/when'}]\n")
    said = []
    threads = [
        threading.Thread(target=build, args=(recipe.load(str(path)), lambda _, what: said.append(what)))
        for _ in range(2)
    ]
    with builder(path) as other:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        *words, ref = other.communicate()[0].split()
    assert sorted([*said, *words]) == ["building", "built", "cached", "cached"]
    assert ref == store.find("same").ref


def test_a_killed_build_leaves_nothing_that_gc_would_not_take(tmp_path, store):
    path = tmp_path / "slow.yaml"
    path.write_text("schema: 1\nname: slow\nfrom: host\nsteps: [{run: 'echo half >/half; sleep 100'}]\n")
    with builder(path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "building\n"
        assert len(list((store.root / "scratch").iterdir())) == 1
        process.kill()
    found = LocalBackend().gc()
    assert found["builds"] == 1
    assert found["boxes"] >= 1
    assert layers(store) == set()
    path.write_text(path.read_text().replace("; sleep 100", ""))
    assert build(recipe.load(str(path))).name == "slow"


def test_pruning_spares_what_a_sandbox_or_a_snapshot_uses(make, store):
    old, _ = make("mine", {"run": "echo 1 >/v"})
    with create(image="mine") as box:
        new, _ = make("mine", {"run": "echo 2 >/v"})
        assert prune(store)["layers"] == 0
        child = box.fork()[0]
        snapshot = child.snapshot()
        child.close()
    assert prune(store)["layers"] == 0
    with create(snapshot=snapshot.id) as box:
        assert (box.read_file("/v"), box.spec.image) == (b"1\n", old.ref)
    assert prune(store, unused_names=True)["names"] == 1  # nobody uses the new one
    assert layers(store) == {old.layers[0].id}
    LocalBackend().delete_snapshot(snapshot.id)
    assert prune(store)["layers"] == 1
    for ref in ("mine", new.ref):
        with pytest.raises(ImageError, match=r"forkgym images build"):
            create(image=ref)


def test_an_unknown_image_says_what_is_built_and_how_to_build(make):
    make("mine", {"run": "true"})
    with pytest.raises(ImageError, match=r"no image 'nime'; built: host, mine.*forkgym images build \{base\}"):
        create(image="nime")
    with pytest.raises(ImageError, match=r"'base' is not built yet; build it once: forkgym images build base"):
        create(image="base")
    for odd in ("../mine", "mine@", "mine@../../x", "", "Mine", "a\0b"):
        with pytest.raises(ImageError):
            create(image=odd)


def test_the_list_tells_size_layers_use_and_what_could_be_built(make):
    chain, _ = make("mine", {"run": "head -c 100000 /dev/urandom >/x"}, {"run": "rm /x"})
    with create(image="mine") as box:
        found = {image.name: image for image in inventory.listed()}
        assert found["mine"].used_by == (box.id,)
    mine = found["mine"]
    assert (mine.state, mine.id) == ("ready", chain.layers[0].id)
    assert mine.layers == ("run: head -c 100000 /dev/urandom >/x", "run: rm /x")
    assert 100_000 <= mine.size <= 130_000
    assert found["base"].state == "not built"
    assert LocalBackend().capabilities().images == ("host", "mine")


def test_a_lost_layer_is_an_error_that_tells_how_to_mend_it(make, store):
    chain, _ = make("mine", {"run": "echo 1 >/1"}, {"run": "echo 2 >/2"})
    state.remove_tree(chain.layers[1].path)
    with pytest.raises(ImageError, match=r"'mine' lost its layer .* build it again: forkgym images build mine"):
        create(image="mine")
    assert {image.name: image.state for image in inventory.listed()}["mine"] == "broken"


def test_an_image_over_this_machine_cannot_leave_it(make):
    make("mine", {"run": "true"})
    with pytest.raises(ImageError, match="stands on this machine's own system"):
        export_tar("mine", io.BytesIO())


def wheel(folder, name):
    """A wheel with one module, written by hand."""
    record = (
        f"{name}.py,,\n{name}-1.0.dist-info/METADATA,,\n{name}-1.0.dist-info/WHEEL,,\n{name}-1.0.dist-info/RECORD,,\n"
    )
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{name}.py", "answer = 42\n")
        archive.writestr(f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(
            f"{name}-1.0.dist-info/WHEEL",
            "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr(f"{name}-1.0.dist-info/RECORD", record)


def test_wheels_are_fetched_outside_and_installed_inside(make, tmp_path, monkeypatch):
    bundled = Path(ensurepip.__file__).parent / "_bundled"
    for path in bundled.glob("pip-*.whl"):
        shutil.copy(path, tmp_path)
    wheel(tmp_path, "forkgym_probe")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    make("py", {"pip": ["forkgym_probe==1.0"]})
    with create(image="py") as box:
        assert box.exec("python3 -c 'import forkgym_probe as p; print(p.answer)'").stdout == b"42\n"
        assert box.list_dir("/mnt") == []
    with pytest.raises(ImageError, match=r"the step `pip: forkgym_absent` failed: ERROR: .*forkgym_absent"):
        make("py", {"pip": ["forkgym_absent"]})


@pytest.fixture
def npm_registry(monkeypatch, tmp_path):
    """A registry on this machine that has one package; gone in time for what must not need it."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, text in (
            ("package.json", json.dumps({"name": "probe", "version": "1.0.0", "bin": {"probe": "probe.js"}})),
            ("probe.js", "#!/usr/bin/env node\nconsole.log(6 * 7)\n"),
        ):
            info = tarfile.TarInfo(f"package/{name}")
            info.size, info.mode = len(text), 0o755
            archive.addfile(info, io.BytesIO(text.encode()))
    data = packed.getvalue()
    integrity = "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            host = f"http://{self.headers['Host']}"
            version = {"name": "probe", "version": "1.0.0", "bin": {"probe": "probe.js"}}
            version["dist"] = {"tarball": f"{host}/probe/-/probe-1.0.0.tgz", "integrity": integrity}
            page = {"name": "probe", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
            known = {"/probe": json.dumps(page).encode(), "/probe/-/probe-1.0.0.tgz": data}
            self.send_response(200 if self.path in known else 404)
            self.end_headers()
            self.wfile.write(known.get(self.path, b"{}"))

        def log_message(self, format, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setenv("npm_config_registry", f"http://127.0.0.1:{server.server_port}/")
    monkeypatch.setenv("npm_config_fetch_retries", "0")
    yield
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.skipif(shutil.which("npm") is None, reason="this machine has no npm, so the image `host` has none either")
def test_npm_packages_are_fetched_outside_and_installed_inside(make, npm_registry):
    make("js", {"npm": ["probe"]})
    with create(image="js") as box:
        assert box.exec("probe").stdout == b"42\n"
    with pytest.raises(ImageError, match=r"(?s)the step `npm: absent` failed: npm.*404"):
        make("js", {"npm": ["absent"]})


ORDINARY = """
import sys
from forkgym.sandboxes import create
from forkgym.sandboxes.errors import ImageError
from forkgym.sandboxes.images import recipe
from forkgym.sandboxes.images.build import build
for path in sys.argv[1:]:
    try:
        build(recipe.load(path))
        with create(image="mine") as box, box.fork()[0] as child:
            print(child.exec("cat /opt/a /b /opt/tool/t; python3 -c 'import forkgym_probe'").stdout.decode(), end="")
    except ImageError as error:
        print(error)
"""


def test_an_ordinary_user_builds_over_the_host_but_not_debian(ordinary_user, place):
    shutil.copytree(Path(yaml.__file__).parent, place / "package" / "yaml", ignore=shutil.ignore_patterns("*.so"))
    (place / "a").write_text("copied\n")
    (place / "mine.yaml").write_text(
        "schema: 1\nname: mine\nfrom: host\nsteps:\n"
        "  - copy: {a: /opt/a}\n  - toolbox: {tool: /opt/tool}\n  - run: rm -r /srv; cat /opt/tool/t >/b\n"
        # Where pip installs for all users; the host's own directory there belongs to the host's root.
        "  - run: d=$(python3 -c 'import sysconfig as s; print(s.get_path(\"purelib\"))') && mkdir -p $d &&"
        " echo 'print(42)' >$d/forkgym_probe.py\n"
    )
    (place / "tool").mkdir()
    (place / "tool" / "t").write_text("shown\n")
    (place / "deb.yaml").write_text("schema: 1\nname: deb\nfrom: debian\n")
    done = ordinary_user.run(ORDINARY, place / "mine.yaml", place / "deb.yaml")
    assert done.stderr == ""
    assert done.stdout.startswith(
        "copied\nshown\nshown\n42\nDebian packages need many user ids, so only root can build"
    )


def test_a_spec_names_the_image_that_it_got(make):
    chain, _ = make("mine", {"run": "true"})
    with LocalBackend().create(SandboxSpec(image="mine")) as box:
        assert box.spec.image == chain.ref
        assert os.path.basename(chain.layers[0].path) == chain.ref.partition("@")[2]


def test_images_of_a_state_directory_in_memory_lie_on_a_disk_unless_it_was_named(place, tmp_path, monkeypatch):
    monkeypatch.setenv(state.ENVIRONMENT, str(place))
    assert state.large_dir(place) == place
    monkeypatch.delenv(state.ENVIRONMENT)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    if state._file_system(place) != "tmpfs":
        assert state.large_dir(place) == place
    elif state._unfit(tmp_path) is None and state._file_system(tmp_path) != "tmpfs":
        assert state.large_dir(place) == tmp_path / "forkgym" / "state"
    else:
        assert state.large_dir(place) in (place, Path(f"/var/tmp/forkgym-{os.geteuid()}"))
