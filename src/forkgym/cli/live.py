"""A view of a long run in phases: live in a terminal, plain lines now and then elsewhere."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from forkgym.cli.output import clock

State = Literal["waiting", "running", "done", "failed"]
BLOCKS = "▁▂▃▄▅▆▇█"
PLAIN_EVERY_SECONDS = 15.0


@dataclass
class Phase:
    """One part of the run. ``total`` is ``None`` while nobody knows how much there is to do."""

    key: str
    title: str
    state: State = "waiting"
    done: float = 0
    total: float | None = None
    note: str = ""
    started: float = 0.0
    ended: float = 0.0
    curve: list[float] = field(default_factory=list[float])


class LiveView:
    """Shows phases with their progress, a note each, and a small curve. A context manager, for one thread.

    ``phases`` are (key, title) in the order they run.
    """

    def __init__(
        self,
        title: str,
        phases: Sequence[tuple[str, str]],
        console: Console,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.title = title
        self.phases = {key: Phase(key, text) for key, text in phases}
        self.last = ""
        self._console = console
        self._now = now
        self._began = now()
        self._spoke = self._began
        self._spinner = Spinner("dots", style="cyan")
        self._live = (
            Live(get_renderable=self.render, console=console, refresh_per_second=8) if console.is_terminal else None
        )

    def start(self, key: str, total: float | None = None, note: str = "") -> None:
        """A phase begins; called again, it says how much there is to do now that this is known."""
        phase = self.phases[key]
        phase.total, phase.done, phase.note = total, 0, note
        if phase.state == "waiting":
            phase.state, phase.started = "running", self._now()
            self._say(f"{phase.title} …")

    def update(self, key: str, done: float, note: str = "", point: float | None = None) -> None:
        """``done`` of the phase's total is reached; ``point`` is one more value of its curve, between 0 and 1."""
        phase = self.phases[key]
        phase.done, phase.note = done, note or phase.note
        if point is not None and math.isfinite(point):
            phase.curve.append(point)
        if self._now() - self._spoke >= PLAIN_EVERY_SECONDS:
            self._say(f"{phase.title}: {_amount(phase)} {phase.note}")

    def finish(self, key: str, note: str = "") -> None:
        """A phase has ended well."""
        phase = self.phases[key]
        phase.state, phase.ended, phase.note = "done", self._now(), note or phase.note
        self._say(f"{phase.title}: done in {clock(phase.ended - phase.started)}. {phase.note}")

    def tell(self, line: str) -> None:
        """What just happened, such as the episode that ended; the last one stays in sight."""
        self.last = line

    @property
    def seconds(self) -> float:
        """Time since the view was made."""
        return self._now() - self._began

    def __enter__(self) -> LiveView:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for phase in self.phases.values():
            if phase.state == "running":
                phase.state, phase.ended = "failed", self._now()
        if self._live:
            self._live.stop()

    def _say(self, line: str) -> None:
        """A plain line, where no live view is shown."""
        self._spoke = self._now()
        if self._live is None:
            self._console.print(Text(f"[{clock(self.seconds)}] {line.rstrip()}"), soft_wrap=True)

    def render(self) -> RenderableType:
        """The view as it is now."""
        table = Table.grid(padding=(0, 1), expand=True)
        table.add_column(width=2)
        table.add_column(no_wrap=True)
        table.add_column(width=24)
        table.add_column(justify="right", no_wrap=True, style="dim")
        table.add_column(ratio=1, overflow="ellipsis", no_wrap=True)
        for phase in self.phases.values():
            table.add_row(*self._row(phase))
        last = Text(self.last, style="dim", no_wrap=True, overflow="ellipsis")
        heading = f"[bold]{self.title}[/] · {clock(self.seconds)}"
        return Panel(Group(table, Text(), last), title=heading, title_align="left", border_style="cyan", padding=(1, 2))

    def _row(self, phase: Phase) -> tuple[RenderableType, ...]:
        marks: dict[State, RenderableType] = {
            "waiting": Text("·", "dim"),
            "running": self._spinner,
            "done": Text("✓", "bold green"),
            "failed": Text("✗", "bold red"),
        }
        title = Text(phase.title, "dim" if phase.state == "waiting" else "")
        bar: RenderableType = Text()
        if phase.state == "running":
            bar = ProgressBar(total=phase.total, completed=phase.done, pulse=phase.total is None)
        elif phase.curve:
            bar = Text(sparkline(phase.curve, 24), "green")
        passed = "" if phase.state == "waiting" else clock((phase.ended or self._now()) - phase.started)
        left = self._left(phase)
        note = Text(phase.note)
        if phase.state == "running" and phase.curve:
            note = Text.assemble((sparkline(phase.curve, 16), "green"), " ", phase.note)
        return marks[phase.state], title, bar, f"{passed} {left}".strip(), note

    def _left(self, phase: Phase) -> str:
        """A guess at the time left, once there is something to guess from."""
        if phase.state != "running" or not phase.total or phase.done < 0.05 * phase.total:
            return ""
        passed = self._now() - phase.started
        return f"· {clock(passed * (phase.total - phase.done) / phase.done)} left"


def sparkline(values: Sequence[float], width: int) -> str:
    """The last ``width`` values, each between 0 and 1, as blocks of growing height."""
    top = len(BLOCKS) - 1
    return "".join(BLOCKS[round(min(max(value, 0.0), 1.0) * top)] for value in values[-width:])


def _amount(phase: Phase) -> str:
    return f"{phase.done:g}" if phase.total is None else f"{phase.done:g} of {phase.total:g}"
