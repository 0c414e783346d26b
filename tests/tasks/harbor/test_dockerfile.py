"""What of a Dockerfile is followed over an image of ours, and what is refused by line."""

from __future__ import annotations

import pytest

from forkgym.tasks.errors import TaskFormatError
from forkgym.tasks.importers.dockerfile import bases, follow, workdir

CONTEXT = {"a.txt": b"a", "src/m.py": b"m", "src/deep/n.py": b"n", "x.sh": b"#!/bin/sh\n"}


def plan(text: str, target: str = "/app"):
    return follow(f"FROM base\nWORKDIR {target}\n{text}\n", "Dockerfile", CONTEXT, target)


@pytest.mark.parametrize(
    ("text", "files"),
    [
        ("COPY a.txt .", {"a.txt": "a.txt"}),
        ("COPY a.txt b.txt", {"b.txt": "a.txt"}),
        ("COPY ./a.txt x.sh sub/", {"sub/a.txt": "a.txt", "sub/x.sh": "x.sh"}),
        ("COPY src /app/lib", {"lib/m.py": "src/m.py", "lib/deep/n.py": "src/deep/n.py"}),
        ("COPY src/*.py ./", {"m.py": "src/m.py"}),
        ('COPY ["a.txt", "with space.txt"]', {"with space.txt": "a.txt"}),
        ("WORKDIR sub\nADD a.txt ./", {"sub/a.txt": "a.txt"}),
        ("COPY . .", {path: path for path in CONTEXT}),
    ],
)
def test_copied_files(text: str, files: dict[str, str]) -> None:
    assert plan(text).files == files


def test_commands_run_where_docker_would_run_them() -> None:
    made = plan('RUN one \\\n  && two # three\n# a comment\nWORKDIR /opt/x\nRUN ["cp", "a b", "c"]')
    assert made.setup == ["one && two # three", "mkdir -p /opt/x && cd /opt/x && cp 'a b' c"]
    assert plan("RUN a\n").setup == ["a"]


def test_variables() -> None:
    assert plan('ENV A=1 B="x y"\nENV OLD some words').env == {"A": "1", "B": "x y", "OLD": "some words"}


def test_what_has_no_effect_here() -> None:
    made = plan('CMD ["x"]\nENTRYPOINT y\nEXPOSE 80\nLABEL a=b\nVOLUME /v\nUSER root')
    assert (made.files, made.setup, made.env) == ({}, [], {})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("FROM second", "Dockerfile:3: FROM: several stages need Docker"),
        ("COPY nothing .", "Dockerfile:3: COPY: the build context has no 'nothing'"),
        ("COPY a.txt /etc/a", "Dockerfile:3: COPY: /etc/a lies outside of /app"),
        ("COPY a.txt ../b", "Dockerfile:3: COPY: /app/../b lies outside of /app"),
        ("COPY --from=x a .", "Dockerfile:3: COPY: only plain files"),
        ("ADD https://example.org/x .", "Dockerfile:3: ADD: only plain files"),
        ("COPY a.txt", "Dockerfile:3: COPY: only plain files"),
        ("ENV A=$B", r"Dockerfile:3: ENV: 'A=\$B' cannot be followed"),
        ("ENV A='", "Dockerfile:3: ENV: No closing quotation"),
        ("\n\nRUN --mount=type=cache x", "Dockerfile:5: RUN: mounts and here-documents need Docker"),
        ("RUN [1", "Dockerfile:3: RUN: not a JSON list"),
        ("COPY [1", "Dockerfile:3: COPY: not a JSON list"),
        ("USER app", "Dockerfile:3: USER: imported tasks run as root, not as 'app'"),
        ("ARG X=1", "Dockerfile:3: ARG: only Docker can follow this"),
        ("SHELL x", "Dockerfile:3: SHELL: only Docker can follow this"),
    ],
)
def test_what_only_docker_can_do_is_refused_by_line(text: str, message: str) -> None:
    with pytest.raises(TaskFormatError, match=message):
        plan(text)


def test_bases_that_a_build_needs() -> None:
    copies = "COPY --from=made /a /a\nCOPY --from=tools:2 /b /b\nCOPY --from=0 /c /c\n"
    text = f"FROM --platform=x golang:1 AS made\nFROM scratch\n{copies}FROM made\n"
    assert bases(text) == ["golang:1", "tools:2"]


def test_the_last_workdir() -> None:
    assert workdir("FROM x\nWORKDIR /a\nWORKDIR b\nworkdir ./c\n") == "/a/b/c"
    assert workdir("FROM x\n") is None
