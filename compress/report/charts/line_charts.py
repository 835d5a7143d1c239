"""Charts of several rows as lines: how far confidence can be trusted, and what waiting costs as callers come."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

from compress.report.charts.label_placement import around, placed_label
from compress.report.charts.svg import Frame, ends, glyph, grid, svg, text


@dataclass(frozen=True)
class Dot:
    """One place on a curve."""

    x: float
    y: float
    said: str
    """What pointing at it tells; where ``shown``, what stands beside it."""
    weight: float = 1.0
    """The share of everything that it stands for: chooses the size."""


@dataclass(frozen=True)
class Curve:
    """One row of the ledger as a line of dots."""

    label: str
    dots: tuple[Dot, ...]
    series: int
    """Which model it is: chooses the colour."""
    glyph: int
    """Which variant it is: chooses the mark."""


def reliability(curves: Sequence[Curve], axes: tuple[str, str], width: int) -> str:
    """Confidence against the share of right answers, both in percent; on the diagonal a model knows what it knows."""
    lowest = min(value for curve in curves for dot in curve.dots for value in (dot.x, dot.y))
    low = max(0.0, math.floor(lowest / 10) * 10 - 2.0)
    frame = Frame(44, width - 14, 24, width - 44, (low, 102.0), (low, 102.0), x_log=False)
    parts = [*grid(frame, axes, width)]
    parts.append(f'<line class="even" {ends(frame.x(low), frame.y(low), frame.x(100), frame.y(100))}/>')
    for curve in curves:
        parts += _line(curve, frame)
        parts += (_dot(curve, dot, frame, 2.5 + 8 * math.sqrt(dot.weight)) for dot in curve.dots)
    return svg("".join(parts), width, width, f"{axes[1]} against {axes[0]}")


def load(curves: Sequence[Curve], axes: tuple[str, str], width: int) -> str:
    """Rows a second against the wait that 95 % of the calls stay below, both logarithmic; a dot a number of callers."""
    height = 320 if width > 500 else 300
    dots = [dot for curve in curves for dot in curve.dots]
    frame = Frame(
        52, width - 12, 24, height - 44, _room([dot.x for dot in dots]), _room([dot.y for dot in dots]), y_log=True
    )
    parts = [*grid(frame, axes, height)]
    taken = [around(frame.x(dot.x), frame.y(dot.y), 8) for dot in dots]
    taken += [around(x, y, 3) for curve in curves for x, y in _along(curve, frame)]
    for curve in curves:
        parts += _line(curve, frame)
        for dot in curve.dots:
            parts.append(_dot(curve, dot, frame, 5))
            parts.append(text(frame.x(dot.x), frame.y(dot.y) - 9, dot.said, "tick", "middle"))
            taken.append(around(frame.x(dot.x), frame.y(dot.y) - 13, 6))
    for curve in curves:
        end = curve.dots[-1]
        parts.append(placed_label(frame.x(end.x), frame.y(end.y), curve.label, frame, taken))
    return svg("".join(parts), width, height, f"{axes[1]} against {axes[0]}")


def _line(curve: Curve, frame: Frame) -> Iterable[str]:
    if len(curve.dots) > 1:
        path = " ".join(f"{frame.x(dot.x):.1f},{frame.y(dot.y):.1f}" for dot in curve.dots)
        yield f'<polyline class="curve s{curve.series}" points="{path}"/>'


def _along(curve: Curve, frame: Frame) -> Iterable[tuple[float, float]]:
    """Places on the lines between dots, close enough that no label fits between two of them."""
    for one, other in pairwise(curve.dots):
        for share in (0.2, 0.4, 0.6, 0.8):
            yield (
                frame.x(one.x) + share * (frame.x(other.x) - frame.x(one.x)),
                frame.y(one.y) + share * (frame.y(other.y) - frame.y(one.y)),
            )


def _dot(curve: Curve, dot: Dot, frame: Frame, size: float) -> str:
    mark = glyph(curve.glyph, frame.x(dot.x), frame.y(dot.y), size, f"fill mark s{curve.series}")
    return f"<g><title>{escape(f'{curve.label}: {dot.said}')}</title>{mark}</g>"


def _room(values: Sequence[float]) -> tuple[float, float]:
    return min(values) / 1.35, max(values) * 1.35
