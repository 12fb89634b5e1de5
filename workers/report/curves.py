"""Lines over time as SVG, made of numbers alone: no script, no file beside."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from runtime.policy.limits import DEFAULT_LIMITS

WIDTH, HEIGHT = 900, 180
LEFT, RIGHT, TOP, BOTTOM = 60, 10, 10, 26
TICKS = 5

Point = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Points (seconds since the start, value), in order."""

    name: str
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A stretch of time that is marked."""

    since_s: float
    until_s: float
    label: str


def chart(lines: Sequence[Line], *, until_s: float, unit: str, spans: Sequence[Span] = ()) -> str:
    """One chart; an empty one says so."""
    top = max((value for line in lines for _, value in line.points), default=0.0)
    if top <= 0 and not spans:
        return '<p class="none">nothing was kept of it</p>'
    frame = _Frame(until_s=max(until_s, 0.001), top=_round_up(top))
    parts = [*(_span(frame, span) for span in spans), *_axes(frame)]
    parts += [_line(frame, line, number) for number, line in enumerate(lines)]
    legend = " ".join(
        f'<span class="key k{number % 6}">{escape(line.name)}</span>' for number, line in enumerate(lines)
    )
    drawn = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">{"".join(parts)}</svg>'
    return f'<p class="none">{escape(unit)}</p>{drawn}<p class="legend">{legend}</p>'


def thinned(points: Sequence[Point], most: int = DEFAULT_LIMITS.report_points) -> tuple[Point, ...]:
    """At most so many of the points, first and last among them."""
    if len(points) <= most:
        return tuple(points)
    step = (len(points) - 1) / (most - 1)
    return tuple(points[round(n * step)] for n in range(most))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
    until_s: float
    top: float

    def x(self, at_s: float) -> float:
        inner = WIDTH - LEFT - RIGHT
        return LEFT + inner * min(1.0, max(0.0, at_s / self.until_s))

    def y(self, value: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - min(1.0, value / self.top))


def _axes(frame: _Frame) -> list[str]:
    parts: list[str] = []
    for n in range(TICKS):
        value = frame.top * n / (TICKS - 1)
        y = frame.y(value)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="left" x="{LEFT - 6}" y="{y + 4:.1f}">{value:,.4g}</text>')
        at_s = frame.until_s * n / (TICKS - 1)
        anchor = "end" if n == TICKS - 1 else "middle"
        parts.append(
            f'<text x="{frame.x(at_s):.1f}" y="{HEIGHT - 8}" text-anchor="{anchor}">{at_s:,.4g} s</text>'
        )
    return parts


def _line(frame: _Frame, line: Line, number: int) -> str:
    points = " ".join(f"{frame.x(at_s):.1f},{frame.y(value):.1f}" for at_s, value in thinned(line.points))
    return f'<polyline class="s{number % 6}" points="{points}"><title>{escape(line.name)}</title></polyline>'


def _span(frame: _Frame, span: Span) -> str:
    since, until = frame.x(span.since_s), frame.x(span.until_s)
    width = max(2.0, until - since)
    return (
        f'<rect class="closed" x="{since:.1f}" y="{TOP}" width="{width:.1f}" height="{HEIGHT - TOP - BOTTOM}">'
        f"<title>{escape(span.label)}</title></rect>"
    )


def _round_up(value: float) -> float:
    """The next of 1, 2, 5 times a power of ten."""
    if value <= 0:
        return 1.0
    power = 10.0 ** len(str(int(value))) / 10 if value >= 1 else 0.1
    return next(step * power for step in (1, 2, 2.5, 5, 10, 20, 25, 50, 100) if step * power >= value)
