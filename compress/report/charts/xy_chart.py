"""Charts with two numeric axes: markers, intervals, lines between markers, and labels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from compress.report.charts.svg import Frame, line, marker, svg, text, with_tooltip

LABEL_HEIGHT = 14.0


@dataclass(frozen=True)
class Point:
    """One marker."""

    x: float
    y: float
    tooltip: str
    x_interval: tuple[float, float] | None = None
    y_interval: tuple[float, float] | None = None
    radius: float = 6.0


@dataclass(frozen=True)
class Series:
    """The points of one row of the ledger, joined by a line."""

    label: str
    points: tuple[Point, ...]
    colour: int
    """The number of the model's colour."""
    marker: int
    """The number of the variant's marker."""
    filled: bool = True
    """False for rows that missed the gate."""
    labelled: bool = False
    """Whether its label is printed at the last point; the legend and tooltips name the others."""


def xy_chart(series: Sequence[Series], frame: Frame, x_label: str, y_label: str, background: Sequence[str] = ()) -> str:
    """Draw series over their axes; ``background`` is drawn below them."""
    parts = [*frame.axes(x_label, y_label), *background]
    for one in sorted(series, key=lambda one: one.labelled):
        if len(one.points) > 1:
            path = " ".join(f"{frame.x(point.x):.1f},{frame.y(point.y):.1f}" for point in one.points)
            parts.append(f'<polyline class="curve s{one.colour}" points="{path}"/>')
        parts += (with_tooltip(point.tooltip, *_marks(point, one, frame)) for point in one.points)
    return svg([*parts, *_labels(series, frame)], frame.width, frame.height, f"{y_label} against {x_label}")


def _marks(point: Point, series: Series, frame: Frame) -> Iterable[str]:
    x, y, colour = frame.x(point.x), frame.y(point.y), f"s{series.colour}"
    if point.y_interval:
        yield line(x, frame.y(point.y_interval[0]), x, frame.y(point.y_interval[1]), f"whisker {colour}")
    if point.x_interval:
        yield line(frame.x(point.x_interval[0]), y, frame.x(point.x_interval[1]), y, f"whisker {colour}")
    yield marker(series.marker, x, y, point.radius, f"{'fill' if series.filled else 'hollow'} mark {colour}")


def _labels(series: Sequence[Series], frame: Frame) -> Iterable[str]:
    """Print labels from top to bottom on the side of their points with more space, each below the one before."""
    lowest = -LABEL_HEIGHT
    ends = ((one.label, frame.x(one.points[-1].x), frame.y(one.points[-1].y)) for one in series if one.labelled)
    for label, x, y in sorted(ends, key=lambda end: end[2]):
        lowest = max(y + 4, lowest + LABEL_HEIGHT)
        on_left = x > (frame.left + frame.right) / 2
        yield text(x - 14 if on_left else x + 14, lowest, label, "label strong outlined", "end" if on_left else "start")
