"""Charts as inline SVG: pure functions from numbers to text, coloured by the page's style sheet.

Every chart is drawn at the width it is shown at, so that its letters stay as large as the page's: a page shows a wide
drawing or a narrow one, never a scaled one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from compress.report.charts.label_placement import around, placed_label
from compress.report.charts.svg import LETTER, Frame, box, ends, glyph, grid, svg, text


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
    parts = [*grid(frame, axes, height)]
    taken = [around(frame.x(point.x), frame.y(point.y), 8) for point in points]
    if gate is not None:
        y = frame.y(gate)
        taken += [
            (frame.left, y - 2, frame.right, y + 2),
            (frame.right - len(gate_label) * LETTER, y, frame.right, y + 18),
        ]
        parts.append(f'<rect class="missed-area" {box(frame.left, y, frame.right - frame.left, frame.bottom - y)}/>')
        parts.append(f'<line class="gate" {ends(frame.left, y, frame.right, y)}/>')
        parts.append(text(frame.right - 6, y + 15, gate_label, "gate-label", "end"))
    for point in sorted(points, key=lambda point: point.named):
        parts += _drawn_point(point, frame)
        if point.named:
            parts.append(placed_label(frame.x(point.x), frame.y(point.y), point.label, frame, taken))
    return svg("".join(parts), width, height, f"{axes[1]} against {axes[0]}")


def bars(given: Sequence[Bar], width: int) -> str:
    """Lengths below each other, each with its label above it and its value behind it."""
    row, top = 40, 2
    longest = max(bar.value for bar in given)
    room = width - 84
    parts = []
    for place, bar in enumerate(given):
        y = top + place * row
        length = max(2.0, room * bar.value / longest)
        parts.append(text(0, y + 12, bar.label, "label strong" if bar.marked else "label"))
        parts.append(f'<rect class="fill s{bar.series}" rx="3" {box(0, y + 17, length, 10)}/>')
        parts.append(text(length + 8, y + 26, bar.shown, "value strong" if bar.marked else "value"))
    return svg("".join(parts), width, top + row * len(given), "sizes")


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
        parts.append(text(0, y + 12, step.label, "label strong"))
        parts.append(text(len(step.label) * LETTER + 14, y + 12, step.detail, "label quiet"))
        parts.append(f'<rect class="{behind}" rx="3" {box(begin, y + 20, max(2.0, end - begin), 13)}/>')
        parts.append(text(end + 8, y + 31, step.shown, "value strong"))
        if index + 1 < len(steps):
            parts.append(f'<line class="join" {ends(place[index + 1], y + 20, place[index + 1], y + row + 20)}/>')
    y = top + len(steps) * row
    begin, end = sorted((place[0], place[-1]))
    parts.append(text(0, y + 12, "all together", "label strong"))
    parts.append(f'<rect class="fill whole" rx="3" {box(begin, y + 20, max(2.0, end - begin), 13)}/>')
    parts.append(text(end + 8, y + 31, total, "value strong"))
    return svg("".join(parts), width, y + row, "what each stage gained")


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


def _drawn_point(point: Point, frame: Frame) -> Iterable[str]:
    x, y = frame.x(point.x), frame.y(point.y)
    series = f"s{point.series}"
    yield f"<g><title>{escape(point.label)}</title>"
    yield f'<line class="whisker {series}" {ends(x, frame.y(point.y_low), x, frame.y(point.y_high))}/>'
    yield f'<line class="whisker {series}" {ends(frame.x(point.x_low), y, frame.x(point.x_high), y)}/>'
    if point.named:
        yield f'<circle class="halo {series}" cx="{x:.1f}" cy="{y:.1f}" r="12"/>'
    yield glyph(point.glyph, x, y, 6, f"{'fill' if point.passed else 'hollow'} mark {series}")
    yield "</g>"
