"""Structured results of test tools as records: JUnit XML and TAP. What contradicts itself is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree import ElementTree

from forkgym.tasks.grading.repository import Result

MESSAGE_CHARS = 2000
SEPARATOR = " > "
_POINT = re.compile(r"(?P<indent> *)(?P<no>not )?ok\b *(?P<number>\d+)? *(?:- )?(?P<rest>.*)")
_DIRECTIVE = re.compile(r"(?:^|\s)#\s*(?P<why>(?:skip|todo)\b.*)$", re.IGNORECASE)
_PLAN = re.compile(r"(?P<indent> *)1\.\.(?P<count>\d+)(?: *# *(?P<why>.*))?")
_INDENT = 4


class UnreadableError(ValueError):
    """A report is malformed, incomplete or contradicts itself."""


def junit(data: bytes, with_class: bool = True) -> list[Result]:
    """The test cases of a JUnit XML document; the id is ``classname::name``, or the name alone where that is wanted.

    Raises ``UnreadableError``, also for entities and for a suite whose count is not that of its cases.
    """
    if b"<!" in data.replace(b"<![CDATA[", b"").replace(b"<!--", b""):
        raise UnreadableError("declares a document type or entities")
    try:
        root = ElementTree.fromstring(data)
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise UnreadableError(f"not XML: {error}") from error
    for suite in root.iter("testsuite"):
        cases, count = suite.findall("testcase"), suite.get("tests", "")
        if cases and suite.find("testsuite") is None and count.isdigit() and int(count) != len(cases):
            raise UnreadableError(f"suite {suite.get('name')!r} counts {count} tests and lists {len(cases)}")
    return [_case(case, with_class) for case in root.iter("testcase")]


def _case(case: ElementTree.Element, with_class: bool) -> Result:
    name, owner = case.get("name", ""), case.get("classname", "") if with_class else ""
    test = f"{owner}::{name}" if owner else name
    try:
        seconds = float(case.get("time", "0").replace(",", ""))
    except ValueError:
        seconds = 0.0
    bad = [child for child in case if child.tag in ("failure", "error")]
    if bad:
        text = bad[0].get("message") or bad[0].text or bad[0].tag
        return Result(test, "failed", text.strip()[:MESSAGE_CHARS], seconds)
    not_run = {case.get("status", "").lower(), case.get("result", "").lower()} & {"notrun", "disabled", "skipped"}
    skipped = case.find("skipped")
    if skipped is not None or not_run:
        text = "" if skipped is None else skipped.get("message") or skipped.text or ""
        return Result(test, "skipped", f"skipped: {text.strip()}"[:MESSAGE_CHARS].removesuffix(": "), seconds)
    if case.get("status", "").lower() in ("fail", "failed", "error"):
        return Result(test, "failed", "failed", seconds)
    return Result(test, "passed", "", seconds, case.findtext("system-out") or "")


def tap(text: str) -> list[Result]:
    """The test points of a TAP stream (12, 13, 14); the id is the description, after those of the subtests above it.

    Raises ``UnreadableError`` without a plan, for points that are not those planned, and for a stream that bailed out.
    """
    found: list[Result] = []
    open_blocks: list[_Block] = [_Block("")]
    for line in _outside_yaml(text):
        if line.lstrip().startswith("Bail out!"):
            raise UnreadableError(line.strip())
        if title := re.fullmatch(r"( *)# Subtest: (.*)", line):
            # Stands one level above the subtest's own points; also before a test that has none.
            _close(open_blocks, len(title[1]) // _INDENT)
            open_blocks.append(_Block(title[2].strip()))
        elif plan := _PLAN.fullmatch(line):
            _close(open_blocks, len(plan["indent"]) // _INDENT)
            open_blocks[-1].planned.append(int(plan["count"]))
        elif point := _POINT.fullmatch(line):
            depth = len(point["indent"]) // _INDENT
            _close(open_blocks, depth)
            open_blocks += [_Block("") for _ in range(depth + 1 - len(open_blocks))]
            found.append(_point(point, open_blocks))
    _close(open_blocks, 0)
    if not open_blocks[0].planned:
        raise UnreadableError("the stream has no plan")
    open_blocks[0].check()
    return found


class _Block:
    """The top level of a stream, or one subtest."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.points = 0
        self.planned: list[int] = []

    def check(self) -> None:
        where = f"subtest {self.name!r}" if self.name else "the stream"
        if not self.planned and not self.points:
            return
        if len(self.planned) != 1:
            raise UnreadableError(f"{where} has {len(self.planned)} plans")
        if self.planned[0] != self.points:
            raise UnreadableError(f"{where} plans {self.planned[0]} tests and has {self.points}")


def _close(blocks: list[_Block], depth: int) -> None:
    while len(blocks) > depth + 1:
        blocks.pop().check()


def _point(point: re.Match[str], blocks: list[_Block]) -> Result:
    block = blocks[-1]
    block.points += 1
    if point["number"] and int(point["number"]) != block.points:
        raise UnreadableError(f"test {point['number']} comes as number {block.points}")
    directive = _DIRECTIVE.search(point["rest"])
    name = point["rest"][: directive.start() if directive else None]
    name = re.sub(r"\\([#\\])", r"\1", name.strip()) or str(block.points)
    test = SEPARATOR.join([*(block.name for block in blocks[1:] if block.name), name])
    if directive:
        return Result(test, "skipped", directive["why"][:MESSAGE_CHARS])
    return Result(test, "failed", "not ok") if point["no"] else Result(test, "passed")


def _outside_yaml(text: str) -> Iterator[str]:
    """The lines that are no diagnostics: those stand between ``---`` and ``...``, indented."""
    inside = ""
    for line in text.splitlines():
        if inside:
            inside = "" if line.rstrip() == inside + "..." else inside
        elif re.fullmatch(r" +---", line.rstrip()):
            inside = line[: line.index("-")]
        else:
            yield line.rstrip()
