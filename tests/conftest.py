"""Shared by all tests: the last word of a run, in plain words that any machine can read."""

from __future__ import annotations

from _pytest.terminal import TerminalReporter


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Print one line with the counts of this run."""
    passed, failed, errors, skipped = (
        len(terminalreporter.stats.get(kind, [])) for kind in ("passed", "failed", "error", "skipped")
    )
    terminalreporter.write_line("")
    terminalreporter.write_line(f"tests: {passed} passed, {failed + errors} failed, {skipped} skipped")
