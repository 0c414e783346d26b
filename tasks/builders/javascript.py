"""JavaScript and TypeScript packages, by the tool that runs their tests."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from typing import Any, cast

from forkgym.sandboxes.base import ExecResult, Sandbox
from forkgym.sandboxes.errors import SandboxFileError
from forkgym.tasks.builders.history import UnfitCommit
from forkgym.tasks.builders.language import COLLECT_TIMEOUT, Environment, Files, uncollected
from forkgym.tasks.grading.javascript import BINS, RUN, relative, tests_of
from forkgym.tasks.grading.results import SEPARATOR

_SUFFIX = r"\.[cm]?[jt]sx?"
_NAMED = re.compile(rf"(^|[.\-_])(test|spec)([.\-_].*)?{_SUFFIX}$")
# Of devDependencies, what no test needs; tried without the rest, too: what tools and languages of tests are called.
_TOOLS = re.compile(
    r"eslint|prettier|biome|husky|lint-staged|commitlint|changelog|changeset|release|size-limit|bundlephobia|publint|"
    r"arethetypeswrong|rollup|webpack|unbuild|tsdown|tsup|microbundle|typedoc|jsdoc|vitepress|docusaurus|storybook|"
    r"benchmark|playwright|puppeteer|cypress|coverage|codecov|coveralls|gulp|grunt|karma|(^|/)(np|nyc|c8|xo|standard)$"
)
_FOR_TESTS = re.compile(r"@?(jest|vitest|babel|swc|ts-|typescript|esbuild|vite|jsdom|types/node)")
_VERSION = re.compile(r"[A-Za-z0-9.^~<>=*|\s-]+")  # a range of the registry, and no address, alias or path
# Links to what is installed, and to what that brought along: many packages count on finding it beside the rest. One
# link each, as tools write caches into node_modules.
_LINK = """\
root=$(npm root -g) && for place in "$root"/* "$root"/@*/* "$root"/*/node_modules/* "$root"/*/node_modules/@*/* \\
    "$root"/@*/*/node_modules/* "$root"/@*/*/node_modules/@*/*; do
  case $place in "$root"/npm*|"$root"/corepack*) continue;; esac
  name=${place##*/node_modules/}
  case $name in @*/*) mkdir -p "node_modules/${name%/*}";; @*) continue;; *) mkdir -p node_modules;; esac
  [ ! -e "$place" ] || [ -e "node_modules/$name" ] || ln -s "$place" "node_modules/$name"
done"""
_REPORT = "/tmp/forkgym-tests.json"


class Node:
    """Packages without dependencies whose tests use ``node:test``; the image must have Node.js."""

    language, runner = "JavaScript", "node:test"

    def owns(self, files: Files) -> bool:
        return "package.json" in files

    def is_test(self, path: str) -> bool:
        *folders, name = path.split("/")
        return bool({"test", "tests", "__tests__"} & set(folders)) or _named(name)

    def is_source(self, path: str) -> bool:
        return is_script(path)

    def runnable(self, path: str) -> bool:
        return path.endswith((".js", ".mjs", ".cjs")) and _named(path.rpartition("/")[2])

    def environments(self, files: Files, version: str) -> Iterator[Environment]:
        if not any(b"node:test" in (item.data or b"") for path, item in files.items() if self.runnable(path)):
            raise UnfitCommit(
                "environment cannot be built", "no test uses node:test, and other runners are not fetched"
            )
        if _manifest(files).get("dependencies"):
            raise UnfitCommit("environment cannot be built", "package.json has dependencies, and those are not fetched")
        yield Environment()

    def collect(self, box: Sandbox, workdir: str, paths: Sequence[str]) -> list[str]:
        place = "/tmp/reporter.mjs"
        box.write_file(place, (resources.files("forkgym.tasks.grading.guest") / "reporter.mjs").read_bytes())
        options = ("--test", f"--test-reporter={place}", "--test-reporter-destination=stdout")
        result = box.exec(("node", *options, *paths), cwd=workdir, timeout=2 * COLLECT_TIMEOUT, max_output=None)
        events = [json.loads(line) for line in result.stdout.splitlines() if line.startswith(b"{")]
        tests = [event for event in events if "path" in event]
        ids = [SEPARATOR.join([relative(event["file"], workdir), *event["path"]]) for event in tests]
        return _once(ids, result)

    def _named(self, name: str) -> bool:
        return bool(re.search(r"(^|[.\-_])(test|spec)([.\-_].*)?\.[cm]?js$", name))


class Jest:
    """Packages that Jest tests: what they depend on, and of the rest what tests may need, is installed globally."""

    language, runner = "JavaScript", "jest"

    def owns(self, files: Files) -> bool:
        try:
            manifest = _manifest(files)
        except UnfitCommit:
            return False
        return self.runner in {**manifest, **_table(manifest, "dependencies"), **_table(manifest, "devDependencies")}

    def is_test(self, path: str) -> bool:
        *folders, name = path.split("/")
        return bool({"test", "tests", "__tests__", "__mocks__", "__snapshots__"} & set(folders)) or _named(name)

    def is_source(self, path: str) -> bool:
        return is_script(path)

    def runnable(self, path: str) -> bool:
        *folders, name = path.split("/")
        script = re.search(_SUFFIX + "$", name) and not {"__mocks__", "fixtures", "__fixtures__"} & set(folders)
        return bool(script) and (_named(name) or "__tests__" in folders)

    def environments(self, files: Files, version: str) -> Iterator[Environment]:
        manifest = _manifest(files)
        needed, more = _table(manifest, "dependencies"), _table(manifest, "devDependencies")
        if unfit := [name for name in needed if not _VERSION.fullmatch(str(needed[name]))]:
            problem = f"package.json depends on {unfit[0]} {needed[unfit[0]]}, which no registry of packages has"
            raise UnfitCommit("environment cannot be built", problem)
        wanted = {self.runner: more.get(self.runner, "*"), **needed}
        if any(path.startswith("jest.config.") and path.endswith("ts") for path in files):
            wanted["ts-node"] = "*"  # Jest reads such a file by it
        fit = {name: item for name, item in more.items() if _VERSION.fullmatch(str(item)) and not _TOOLS.search(name)}
        narrow = {name: item for name, item in fit.items() if _FOR_TESTS.match(name)}
        for chosen in (fit, {**dict.fromkeys(fit, "*"), **narrow}, narrow):
            packages = sorted({**chosen, **wanted}.items())
            steps: list[Mapping[str, Any]] = [{"npm": [_package(name, item) for name, item in packages]}]
            if name := str(manifest.get("name", "")):  # a later release, which one of these may need
                steps.append(
                    {"run": f"find \"$(npm root -g)\" -path '*/node_modules/{name}' -prune -exec rm -rf {{}} +"}
                )
            yield Environment(tuple(steps), (_LINK,))

    def collect(self, box: Sandbox, workdir: str, paths: Sequence[str]) -> list[str]:
        command = ("node", BINS[self.runner], *RUN[self.runner], f"--outputFile={_REPORT}", *paths)
        ended = box.exec(command, cwd=workdir, env={"CI": "true"}, timeout=2 * COLLECT_TIMEOUT)
        try:
            found = tests_of(box.read_file(_REPORT), workdir) or []
        except SandboxFileError:
            found = []
        if broken := [test.message for test in found if SEPARATOR not in test.id and test.message]:
            raise UnfitCommit("tests not collected", broken[0][:500])
        return _once([test.id for test in found], ended)


class Vitest(Jest):
    """The same with Vitest."""

    runner = "vitest"


def is_script(path: str) -> bool:
    """True for code of a package: no declarations of types, and no configuration of a tool."""
    name = path.rpartition("/")[2]
    return bool(re.search(_SUFFIX + "$", name)) and ".config." not in name and ".d." not in name


def _named(name: str) -> bool:
    return bool(_NAMED.search(name))


def _package(name: str, version: Any) -> str:
    return name if version in ("*", "", "latest") else f"{name}@{version}"


def _once(ids: Sequence[str], ended: ExecResult) -> list[str]:
    """The ids that name one test only. Raises ``UnfitCommit`` if there is none."""
    found = [test for test in dict.fromkeys(ids) if ids.count(test) == 1]
    if not found:
        raise uncollected(ended)
    return found


def _manifest(files: Files) -> dict[str, Any]:
    try:
        value = json.loads(files["package.json"].data or b"{}")
    except (KeyError, ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise UnfitCommit("environment cannot be built", "package.json cannot be read")
    return cast("dict[str, Any]", value)


def _table(manifest: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = manifest.get(key)
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
