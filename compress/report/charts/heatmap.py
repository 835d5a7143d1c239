"""A field of numbers as shaded cells: where a gain holds and where it does not."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from compress.report.charts.svg import box, svg, text

FAINT, DEEP = 0.10, 0.50
"""How much of the colour the least and the greatest gain get; above that, letters are hard to read on it."""


@dataclass(frozen=True)
class Cell:
    """A factor at one place of the field."""

    factor: float | None
    shown: str
    detail: str


def heat(
    cells: Mapping[tuple[str, str], Cell],
    columns: Sequence[str],
    rows: Sequence[str],
    axes: tuple[str, str],
    series: int,
    width: int,
) -> str:
    """Cells by (column, row), shaded by the logarithm of their factor; a factor below one has the colour of a loss.

    Args:
        cells: what to draw; places without one stay empty.
        columns: names across.
        rows: names down.
        axes: what columns and rows are.
        series: the colour of gains.
        width: pixels.
    """
    left, top, tall = 64.0, 44.0, 48.0
    wide = (width - left) / len(columns)
    most = max((abs(math.log(cell.factor)) for cell in cells.values() if cell.factor), default=0.0) or 1.0
    parts = [text(0, 12, axes[1], "axis-label"), text(width, 12, axes[0], "axis-label", "end")]
    parts += (
        text(left + (place + 0.5) * wide, top - 10, name, "label", "middle") for place, name in enumerate(columns)
    )
    for down, row in enumerate(rows):
        y = top + down * tall
        parts.append(text(left - 10, y + tall / 2 + 4, row, "label", "end"))
        for across, column in enumerate(columns):
            if cell := cells.get((column, row)):
                parts += _drawn(cell, left + across * wide, y, wide, tall, most, series)
    return svg("".join(parts), width, top + tall * len(rows), f"gain by {axes[0]} and {axes[1]}")


def _drawn(cell: Cell, x: float, y: float, wide: float, tall: float, most: float, series: int) -> list[str]:
    if cell.factor is None:
        ground = f'<rect class="cell-empty" rx="4" {box(x + 1, y + 1, wide - 2, tall - 2)}/>'
    else:
        depth = FAINT + (DEEP - FAINT) * abs(math.log(cell.factor)) / most
        colour = "lost" if cell.factor < 1 else f"s{series}"
        ground = (
            f'<rect class="fill {colour}" fill-opacity="{depth:.2f}" rx="4" {box(x + 1, y + 1, wide - 2, tall - 2)}/>'
        )
    middle = x + wide / 2
    return [
        ground,
        text(middle, y + tall / 2 - 2, cell.shown, "label strong", "middle"),
        text(middle, y + tall / 2 + 14, cell.detail, "tick", "middle"),
    ]
