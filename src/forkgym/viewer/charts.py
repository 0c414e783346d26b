"""Line charts as inline SVG, coloured by CSS variables so that they follow the page's light or dark theme."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 560, 280
LEFT, RIGHT, TOP, BOTTOM = 52, 16, 14, 42
DASHES = ("", "7 4", "2 3", "9 3 2 3")
PALETTE = len(DASHES)


@dataclass(frozen=True)
class Series:
    """One line. ``points`` are (x, y); a point whose y is not finite is a gap."""

    label: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Chart:
    """One chart. ``y_range`` fixes the vertical axis; ``percent`` writes its ticks as percentages."""

    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    y_range: tuple[float, float] | None = None
    percent: bool = False
    note: str = ""


def ticks(low: float, high: float, wanted: int = 6) -> list[float]:
    """Round numbers (1, 2 or 5 times a power of ten) inside [low, high], about ``wanted`` of them."""
    span = high - low
    if not span > 0:
        return [low]
    raw = span / wanted
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [n * step for n in range(first, last + 1)]


def number(value: float, percent: bool = False) -> str:
    """A value as short text: ``12 %``, ``0.25``, ``1.2e-05``."""
    if not math.isfinite(value):
        return "–"
    return f"{value * 100:.3g} %" if percent else f"{value:.4g}"


def render_chart(chart: Chart) -> str:
    """The chart as an HTML ``figure``: drawing, legend, and the same numbers as a table for those who cannot see it."""
    points = [(x, y) for line in chart.series for x, y in line.points if math.isfinite(x) and math.isfinite(y)]
    caption = f'<figcaption>{escape(chart.title)} <span class="quiet">{escape(chart.y_label)}</span></figcaption>'
    if not points:
        return f'<figure class="chart">{caption}<p class="quiet">No data was recorded.</p></figure>'
    low_x, high_x = _widen(min(x for x, _ in points), max(x for x, _ in points))
    low_y, high_y = chart.y_range or _widen(min(y for _, y in points), max(y for _, y in points), margin=0.08)
    scale = _Scale(low_x, high_x, low_y, high_y)
    drawing = [_axes(chart, scale)]
    drawing += [_line(n, line, scale, chart) for n, line in enumerate(chart.series)]
    summary = f"{chart.title}: {chart.y_label} by {chart.x_label}; the numbers are in the table below."
    note = f'<p class="quiet">{escape(chart.note)}</p>' if chart.note else ""
    return (
        f'<figure class="chart">{caption}'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(summary)}">{"".join(drawing)}</svg>'
        f"{_legend(chart)}{note}{_numbers(chart)}</figure>"
    )


@dataclass(frozen=True)
class _Scale:
    low_x: float
    high_x: float
    low_y: float
    high_y: float

    def x(self, value: float) -> float:
        return round(LEFT + (value - self.low_x) / (self.high_x - self.low_x) * (WIDTH - LEFT - RIGHT), 1)

    def y(self, value: float) -> float:
        inside = min(max(value, self.low_y), self.high_y)
        part = (inside - self.low_y) / (self.high_y - self.low_y)
        return round(HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM), 1)


def _widen(low: float, high: float, margin: float = 0.0) -> tuple[float, float]:
    """A range that is never empty, with ``margin`` of its width added on both sides."""
    if low == high:
        pad = abs(low) * 0.1 or 1.0
        return low - pad, high + pad
    pad = (high - low) * margin
    return low - pad, high + pad


def _axes(chart: Chart, scale: _Scale) -> str:
    parts: list[str] = []
    rows = ticks(scale.low_y, scale.high_y)
    for value, text in zip(rows, tick_texts(rows, chart.percent), strict=True):
        y = scale.y(value)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text class="tick" x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{text}</text>')
    whole = all(float(x).is_integer() for line in chart.series for x, _ in line.points)
    columns = ticks(scale.low_x, scale.high_x)
    for value in [x for x in columns if not whole or abs(x - round(x)) < 1e-9]:
        x = scale.x(value)
        parts.append(f'<text class="tick" x="{x}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{value:g}</text>')
    bottom = HEIGHT - BOTTOM
    parts.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{bottom}" y2="{bottom}"/>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(
        f'<text class="label" x="{middle}" y="{HEIGHT - 6}" text-anchor="middle">{escape(chart.x_label)}</text>'
    )
    return "".join(parts)


def tick_texts(values: Sequence[float], percent: bool = False) -> list[str]:
    """Evenly spaced values with as many decimals as it takes to tell them apart."""
    shown = [value * 100 for value in values] if percent else list(values)
    step = shown[1] - shown[0] if len(shown) > 1 else 0.0
    decimals = max(0, -math.floor(math.log10(step) + 1e-9)) if step > 0 else 2
    return [f"{value:.{decimals}f}{'%' if percent else ''}" for value in shown]


def _line(n: int, line: Series, scale: _Scale, chart: Chart) -> str:
    steps: list[str] = []
    marks: list[str] = []
    pen_down = False
    for x, y in line.points:
        if not (math.isfinite(x) and math.isfinite(y)):
            pen_down = False
            continue
        steps.append(f"{'L' if pen_down else 'M'}{scale.x(x)} {scale.y(y)}")
        pen_down = True
        text = escape(f"{line.label}, {chart.x_label} {x:g}: {number(y, chart.percent)}")
        marks.append(
            f'<circle class="s{n % PALETTE}" cx="{scale.x(x)}" cy="{scale.y(y)}" r="3"><title>{text}</title></circle>'
        )
    path = f'<path class="s{n % PALETTE}" d="{" ".join(steps)}"{_dash(n)}/>'
    return path + "".join(marks)


def _dash(n: int) -> str:
    dash = DASHES[n % PALETTE]
    return f' stroke-dasharray="{dash}"' if dash else ""


def _legend(chart: Chart) -> str:
    items = "".join(
        f'<li><svg viewBox="0 0 28 10" aria-hidden="true"><path class="s{n % PALETTE}" d="M1 5 L27 5"{_dash(n)}/></svg>'
        f"{escape(line.label)}</li>"
        for n, line in enumerate(chart.series)
    )
    return f'<ul class="legend">{items}</ul>'


def _numbers(chart: Chart) -> str:
    rows = "".join(
        f'<tr><th scope="row">{escape(line.label)}</th><td>{x:g}</td><td>{number(y, chart.percent)}</td></tr>'
        for line in chart.series
        for x, y in line.points
    )
    head = f"<tr><th>line</th><th>{escape(chart.x_label)}</th><th>{escape(chart.y_label)}</th></tr>"
    table = f"<table><thead>{head}</thead><tbody>{rows}</tbody></table>"
    return f'<details class="numbers"><summary>Numbers</summary>{table}</details>'
