"""What may stand in a recipe, and what is refused, with file, line and key."""

import os
from pathlib import Path

import pytest

from forkgym.errors import ConfigError
from forkgym.sandboxes.errors import ImageError, RecipeError
from forkgym.sandboxes.images import packing, recipe
from forkgym.sandboxes.images.store import library

HEAD = "schema: 1\nname: mine\nfrom: debian\n"


def read(text):
    return recipe.read(text, "my.yaml", Path())


def test_a_recipe_is_read_step_by_step():
    made = read(HEAD + "steps:\n  - apt: [git, tree]\n  - copy: {app: /opt/app, b: /opt/}\n  - run: make\n    \n")
    assert (made.name, made.base) == ("mine", "debian")
    assert [(step.kind, step.value) for step in made.steps] == [
        ("apt", ("git", "tree")),
        ("copy", (("app", "/opt/app"), ("b", "/opt/"))),
        ("run", "make"),
    ]
    assert made.steps[1].where == "my.yaml:6"


def test_each_toolbox_is_a_step_by_itself():
    made = read(HEAD + "steps:\n  - toolbox: {a: /opt/a, b: /opt/b}\n")
    assert [step.value for step in made.steps] == [(("a", "/opt/a"),), (("b", "/opt/b"),)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("schema: 2\nname: mine\nfrom: debian\n", r"my.yaml:1: schema: this version reads schema 1"),
        ("schema: true\nname: mine\nfrom: debian\n", r"my.yaml:1: schema: this version reads schema 1"),
        ("schema: 1\nfrom: debian\n", r"my.yaml:1: the key 'name' is missing"),
        (HEAD + "step: []\n", r"my.yaml:4: step: unknown key; did you mean 'steps'\?"),
        (
            HEAD + "steps:\n  - apt: [git]\n  - pipp: [six]\n",
            r"my.yaml:6: steps.1.pipp: unknown key; did you mean 'pip'",
        ),
        (HEAD + "steps:\n  - {apt: [git], run: make}\n", r"my.yaml:5: steps.0: a step has exactly one key"),
        (HEAD + "steps: {apt: [git]}\n", r"my.yaml:4: steps: must be a list of steps"),
        (HEAD + "steps:\n  - apt: git\n", r"my.yaml:5: steps.0.apt: must be a list of packages"),
        (HEAD + "steps:\n  - run: ''\n", r"my.yaml:5: steps.0.run: must be a command"),
        (HEAD + "steps:\n  - copy: [app]\n", r"my.yaml:5: steps.0.copy: must say what goes where"),
        (HEAD + "steps:\n  - copy: {app: opt/app}\n", r"my.yaml:5: steps.0.copy.app: 'opt/app' must be an absolute"),
        (HEAD + "steps:\n  - copy: {app: /opt/../../etc}\n", r"my.yaml:5: .* is no place for files of an image"),
        (HEAD + "steps:\n  - copy: {app: /proc/1}\n", r"my.yaml:5: .* is no place for files of an image"),
        (HEAD + "steps:\n  - toolbox: {app: /}\n", r"my.yaml:5: .* is no place for files of an image"),
        ("schema: 1\nname: debian\nfrom: host\n", r"my.yaml:2: name: 'debian' is taken"),
        ("schema: 1\nname: mine\nfrom: mine\n", r"my.yaml:2: name: 'mine' is taken"),
        ("schema: 1\nname: ../mine\nfrom: host\n", r"my.yaml:2: name: must be lower-case letters"),
        ("schema: 1\nname: a\nname: b\nfrom: host\n", r"my.yaml:3: name: this key stands here twice"),
        ("- a\n", r"my.yaml:1: must hold keys of: schema, name, from, steps"),
        ("schema: [\n", r"my.yaml:2: not valid YAML"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(text, message):
    with pytest.raises(RecipeError, match=message) as caught:
        read(text)
    assert isinstance(caught.value, ImageError)
    assert isinstance(caught.value, ConfigError)


@pytest.mark.parametrize(
    ("kind", "package"),
    [
        ("apt", "--allow-unauthenticated"),
        ("apt", "git-"),  # would remove it
        ("apt", "./local.deb"),
        ("pip", "--index-url=x"),
        ("pip", "./folder"),
        ("pip", "pkg @ file:///folder"),
        ("pip", "git+https://host/x"),
        ("npm", "--unsafe-perm"),
        ("npm", "../folder"),
        ("npm", "file:folder"),
        ("npm", "user/repository"),
    ],
)
def test_a_package_is_a_name_and_never_an_option_a_path_or_an_address(kind, package):
    with pytest.raises(RecipeError, match=f"my.yaml:5: steps.0.{kind}.0: .* is not a package name"):
        read(HEAD + f"steps:\n  - {kind}: ['{package}']\n")


@pytest.mark.parametrize(
    ("kind", "package"),
    [
        ("apt", "g++"),
        ("apt", "libc6:i386=2.36-9+deb12u1"),
        ("pip", "requests[socks]>=2.31,<3; python_version >= '3.9'"),
        ("npm", "@scope/name@^1.2.3"),
    ],
)
def test_versions_may_be_asked_for(kind, package):
    made = read(HEAD + f'steps:\n  - {kind}: ["{package}"]\n')
    assert made.steps[0].value == (package,)


def test_an_unknown_recipe_says_what_the_library_has(tmp_path):
    with pytest.raises(ImageError, match="did you mean 'base'"):
        recipe.load("bsae")
    with pytest.raises(ImageError, match=r"no recipe '.*absent.yaml': as a file, No such file or directory"):
        recipe.load(str(tmp_path / "absent.yaml"))


def test_every_recipe_of_the_library_is_sound():
    assert [recipe.load(name).name for name in library()] == list(library())


def copied(folder, source):
    step = read(HEAD + f"steps:\n  - copy: {{{source}: /opt/x}}\n").steps[0]
    archive = folder.parent / "files.tar"
    return packing.pack(packing.sources(step, folder), archive, step.where)


@pytest.mark.parametrize("source", ["../secret", "link", "inside/link/secret", "/etc/passwd"])
def test_only_files_below_the_recipe_are_copied(tmp_path, source):
    (tmp_path / "secret").write_text("s")
    folder = tmp_path / "recipe"
    (folder / "inside").mkdir(parents=True)
    (folder / "link").symlink_to("../secret")
    (folder / "inside" / "link").symlink_to(tmp_path)
    with pytest.raises(RecipeError, match=r"my.yaml:5: copy: .* leads out of"):
        copied(folder, source)


def test_a_link_in_a_copied_tree_stays_a_link_and_a_pipe_is_refused(tmp_path):
    folder = tmp_path / "recipe"
    (folder / "app").mkdir(parents=True)
    (folder / "app" / "out").symlink_to("/etc/passwd")
    before = copied(folder, "app")
    (folder / "app" / "out").unlink()
    (folder / "app" / "out").symlink_to("/etc/group")
    assert copied(folder, "app") != before
    os.mkfifo(folder / "app" / "pipe")
    with pytest.raises(RecipeError, match="pipe is neither a file, a directory nor a link"):
        copied(folder, "app")


def test_content_and_modes_count_for_the_hash_and_times_do_not(tmp_path):
    folder = tmp_path / "recipe"
    (folder / "app").mkdir(parents=True)
    file = folder / "app" / "a"
    file.write_text("one")
    first = copied(folder, "app")
    os.utime(file, (1, 1))
    assert copied(folder, "app") == first
    file.chmod(0o755)
    second = copied(folder, "app")
    file.write_text("two")
    assert len({first, second, copied(folder, "app")}) == 3
