"""The command line."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from seam.patching import apply
from seam.unified import diff, parse


def main(arguments: list[str]) -> int:
    """0: done (``diff``: equal), 1: the texts differ, 2: trouble."""
    options = _parser().parse_args(arguments)
    try:
        return options.run(options)
    except (OSError, ValueError) as error:
        print(f"seam: {error}", file=sys.stderr)
        return 2


def _diff(options: argparse.Namespace) -> int:
    text = diff(_read(options.old), _read(options.new), options.old, options.new, options.context)
    sys.stdout.write(text)
    return 1 if text else 0


def _apply(options: argparse.Namespace) -> int:
    changed = apply(_read(options.file), parse(_read(options.patch)), options.reverse)
    Path(options.file).write_bytes(changed.encode())
    return 0


def _read(path: str) -> str:
    return Path(path).read_bytes().decode()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="seam")
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("diff")
    one.add_argument("old")
    one.add_argument("new")
    one.add_argument("--context", type=int, default=3)
    one.set_defaults(run=_diff)
    two = commands.add_parser("apply")
    two.add_argument("patch")
    two.add_argument("file")
    two.add_argument("--reverse", action="store_true")
    two.set_defaults(run=_apply)
    return parser
