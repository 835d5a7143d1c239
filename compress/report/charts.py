"""Charts as inline SVG: pure functions from numbers to text, coloured by the page's style sheet.

Every chart is drawn at the width it is shown at, so that its letters stay as large as the page's: a page shows a wide
drawing or a narrow one, never a scaled one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

LETTER = 7.0
"""Width of an average letter of a bold label, at 12 pixels."""
GLYPHS = ("disc", "square", "diamond", "triangle")
OUTLINES: dict[str, tuple[float, list[tuple[float, float]]]] = {
    "square": (0.9, [(-1, -1), (1, -1), (1, 1), (-1, 1)]),
    "diamond": (1.25, [(0, -1), (1, 0), (0, 1), (-1, 0)]),
    "triangle": (1.2, [(0, -1), (1, 0.8), (-1, 0.8)]),
}
"""Half the width, and the corners in it, of every mark but the disc."""


@dataclass(frozen=True)
class Point:
    """One row at one target: speed against score, with the ends of both intervals."""

    label: str
    x: float
    x_low: float
    x_high: float
    y: float
    y_low: float
    y_high: float
    series: int
    """Which model it is: chooses the colour."""
    glyph: int
    """Which variant it is: chooses the mark."""
    passed: bool
    """Filled, or hollow where the gate refused it."""
    named: bool = False
    """Labelled in the chart; the others are told by the legend and on pointing."""


@dataclass(frozen=True)
class Bar:
    """One labelled length."""

    label: str
    value: float
    shown: str
    series: int
    marked: bool = False


@dataclass(frozen=True)
class Step:
    """One factor on the way from the teacher to the winner."""

    label: str
    detail: str
    factor: float
    shown: str
    series: int


@dataclass(frozen=True)
class Frame:
    """Maps values to pixels inside the axes."""

    left: float
    right: float
    top: float
    bottom: float
    x_range: tuple[float, float]
    y_range: tuple[float, float]

    def x(self, value: float) -> float:
        """The horizontal place of a value on a logarithmic axis."""
        low, high = (math.log(end) for end in self.x_range)
        return self.left + (self.right - self.left) * (math.log(value) - low) / (high - low)

    def y(self, value: float) -> float:
        """The vertical place of a value."""
        low, high = self.y_range
        return self.bottom - (self.bottom - self.top) * (value - low) / (high - low)


def speed_score(points: Sequence[Point], gate: float | None, gate_label: str, axes: tuple[str, str], width: int) -> str:
    """Milliseconds (logarithmic, fast is left) against score, with the gate as a line across.

    Args:
        points: what to draw; at least one.
        gate: the least score that passes, in the unit of the points; None draws no line.
        gate_label: what the line says.
        axes: what the horizontal and the vertical axis say.
        width: pixels.
    """
    height = 340 if width > 500 else 300
    frame = _frame(points, gate, width, height)
    parts = [*_grid(frame, axes, height)]
    taken = [_around(frame.x(point.x), frame.y(point.y), 8) for point in points]
    if gate is not None:
        y = frame.y(gate)
        taken += [
            (frame.left, y - 2, frame.right, y + 2),
            (frame.right - len(gate_label) * LETTER, y, frame.right, y + 18),
        ]
        parts.append(f'<rect class="missed-area" {_box(frame.left, y, frame.right - frame.left, frame.bottom - y)}/>')
        parts.append(f'<line class="gate" {_ends(frame.left, y, frame.right, y)}/>')
        parts.append(_text(frame.right - 6, y + 15, gate_label, "gate-label", "end"))
    for point in sorted(points, key=lambda point: point.named):
        parts += _drawn_point(point, frame)
        if point.named:
            parts.append(_placed_label(point, frame, taken))
    return _svg("".join(parts), width, height, f"{axes[1]} against {axes[0]}")


def bars(given: Sequence[Bar], width: int) -> str:
    """Lengths below each other, each with its label above it and its value behind it."""
    row, top = 40, 2
    longest = max(bar.value for bar in given)
    room = width - 84
    parts = []
    for place, bar in enumerate(given):
        y = top + place * row
        length = max(2.0, room * bar.value / longest)
        parts.append(_text(0, y + 12, bar.label, "label strong" if bar.marked else "label"))
        parts.append(f'<rect class="fill s{bar.series}" rx="3" {_box(0, y + 17, length, 10)}/>')
        parts.append(_text(length + 8, y + 26, bar.shown, "value strong" if bar.marked else "value"))
    return _svg("".join(parts), width, top + row * len(given), "sizes")


def waterfall(steps: Sequence[Step], total: str, width: int) -> str:
    """Factors that multiply to the whole: each bar begins where the one before it ended, on a logarithmic axis."""
    row, top, room = 46, 4, width - 64
    reached = [0.0]
    for step in steps:
        reached.append(reached[-1] + math.log(step.factor))
    low, high = min(reached), max(*reached, math.log(1.05))
    place = [(value - low) / (high - low) * room for value in reached]
    parts = []
    for index, step in enumerate(steps):
        y = top + index * row
        begin, end = sorted(place[index : index + 2])
        behind = "fill lost" if step.factor < 1 else f"fill s{step.series}"
        parts.append(_text(0, y + 12, step.label, "label strong"))
        parts.append(_text(len(step.label) * LETTER + 14, y + 12, step.detail, "label quiet"))
        parts.append(f'<rect class="{behind}" rx="3" {_box(begin, y + 20, max(2.0, end - begin), 13)}/>')
        parts.append(_text(end + 8, y + 31, step.shown, "value strong"))
        if index + 1 < len(steps):
            parts.append(f'<line class="join" {_ends(place[index + 1], y + 20, place[index + 1], y + row + 20)}/>')
    y = top + len(steps) * row
    begin, end = sorted((place[0], place[-1]))
    parts.append(_text(0, y + 12, "all together", "label strong"))
    parts.append(f'<rect class="fill whole" rx="3" {_box(begin, y + 20, max(2.0, end - begin), 13)}/>')
    parts.append(_text(end + 8, y + 31, total, "value strong"))
    return _svg("".join(parts), width, y + row, "what each stage gained")


def glyph(kind: int, x: float, y: float, size: float, classes: str) -> str:
    """A mark of one of four shapes, of about the same area."""
    name = GLYPHS[kind % len(GLYPHS)]
    if name == "disc":
        return f'<circle class="{classes}" cx="{x:.1f}" cy="{y:.1f}" r="{size:.1f}"/>'
    side, corners = OUTLINES[name][0] * size, OUTLINES[name][1]
    path = " ".join(f"{x + side * right:.1f},{y + side * down:.1f}" for right, down in corners)
    return f'<polygon class="{classes}" points="{path}"/>'


def log_ticks(low: float, high: float, most: int) -> list[float]:
    """Round values of a logarithmic axis: 1, 2, 5 and their tenfolds, or fewer where those are too many."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1, 2, 5), (1, 3), (1,)):
        ticks = [step * 10.0**decade for decade in decades for step in steps if low <= step * 10.0**decade <= high]
        if len(ticks) <= most:
            break
    return ticks


def linear_ticks(low: float, high: float, most: int) -> list[float]:
    """Round values of a plain axis."""
    rough = (high - low) / most
    scale = 10.0 ** math.floor(math.log10(rough))
    step = next(scale * factor for factor in (1, 2, 5, 10) if scale * factor >= rough)
    first = math.ceil(low / step - 1e-9)
    return [place * step for place in range(first, math.floor(high / step + 1e-9) + 1)]


def _frame(points: Sequence[Point], gate: float | None, width: int, height: int) -> Frame:
    x_low, x_high = min(point.x_low for point in points), max(point.x_high for point in points)
    heights = [*(point.y_low for point in points), *(point.y_high for point in points)]
    heights += [] if gate is None else [gate]
    margin = (max(heights) - min(heights)) * 0.08 or abs(max(heights)) * 0.05 or 1.0
    return Frame(
        left=44,
        right=width - 10,
        top=24,
        bottom=height - 44,
        x_range=(x_low / 1.25, x_high * 1.25),
        y_range=(min(heights) - margin, max(heights) + margin),
    )


def _grid(frame: Frame, axes: tuple[str, str], height: int) -> Iterable[str]:
    for tick in log_ticks(*frame.x_range, most=int((frame.right - frame.left) / 48)):
        x = frame.x(tick)
        yield f'<line class="grid" {_ends(x, frame.top, x, frame.bottom)}/>'
        yield _text(x, frame.bottom + 16, f"{tick:g}", "tick", "middle")
    for tick in linear_ticks(*frame.y_range, most=6):
        y = frame.y(tick)
        yield f'<line class="grid" {_ends(frame.left, y, frame.right, y)}/>'
        yield _text(frame.left - 8, y + 4, f"{tick:g}", "tick", "end")
    yield f'<line class="axis" {_ends(frame.left, frame.bottom, frame.right, frame.bottom)}/>'
    yield _text(frame.right, height - 8, axes[0], "axis-label", "end")
    yield _text(0, 12, axes[1], "axis-label")


def _drawn_point(point: Point, frame: Frame) -> Iterable[str]:
    x, y = frame.x(point.x), frame.y(point.y)
    series = f"s{point.series}"
    yield f"<g><title>{escape(point.label)}</title>"
    yield f'<line class="whisker {series}" {_ends(x, frame.y(point.y_low), x, frame.y(point.y_high))}/>'
    yield f'<line class="whisker {series}" {_ends(frame.x(point.x_low), y, frame.x(point.x_high), y)}/>'
    if point.named:
        yield f'<circle class="halo {series}" cx="{x:.1f}" cy="{y:.1f}" r="12"/>'
    yield glyph(point.glyph, x, y, 6, f"{'fill' if point.passed else 'hollow'} mark {series}")
    yield "</g>"


Box = tuple[float, float, float, float]
"""Left, top, right, bottom."""


def _placed_label(point: Point, frame: Frame, taken: list[Box]) -> str:
    """The label beside its point, at the first side where it meets nothing and stays inside."""
    x, y, size = frame.x(point.x), frame.y(point.y), len(point.label) * LETTER
    sides = [
        (x + 16, y + 4, "start"),
        (x - 16, y + 4, "end"),
        (x, y - 18, "middle"),
        (x, y + 26, "middle"),
        (x + 14, y - 14, "start"),
        (x - 14, y - 14, "end"),
        (x + 14, y + 22, "start"),
        (x - 14, y + 22, "end"),
    ]

    def box(side: tuple[float, float, str]) -> Box:
        left = side[0] - {"start": 0.0, "middle": size / 2, "end": size}[side[2]]
        return (left, side[1] - 11, left + size, side[1] + 3)

    def free(side: tuple[float, float, str]) -> bool:
        left, top, right, bottom = box(side)
        inside = left >= frame.left and right <= frame.right and top >= frame.top and bottom <= frame.bottom
        return inside and not any(_meet(box(side), other) for other in taken)

    chosen = next(filter(free, sides), sides[0] if x < (frame.left + frame.right) / 2 else sides[1])
    taken.append(box(chosen))
    return _text(chosen[0], chosen[1], point.label, "label strong", chosen[2])


def _meet(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _around(x: float, y: float, reach: float) -> Box:
    return (x - reach, y - reach, x + reach, y + reach)


def _box(x: float, y: float, width: float, height: float) -> str:
    return f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{max(0.0, height):.1f}"'


def _ends(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'


def _text(x: float, y: float, text: str, classes: str, anchor: str = "start") -> str:
    return f'<text class="{classes}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _svg(content: str, width: int, height: float, title: str) -> str:
    size = f'width="{width}" height="{height:.0f}" viewBox="0 0 {width} {height:.0f}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(title)}">{content}</svg>'
