"""A table of numbers as shaded cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from compress.report.charts.svg import rect, svg, text, with_tooltip

FAINTEST, DEEPEST = 0.10, 0.50
"""Opacity of the lowest and the highest value; text is hard to read on more."""
ROW_HEIGHT, MAX_CELL_WIDTH = 26.0, 56.0
READABLE_WIDTH = 34.0
"""Pixels that a cell needs to hold its text."""


@dataclass(frozen=True)
class Cell:
    """One cell."""

    depth: float | None
    """How deep its colour is, from 0 to 1; None leaves it empty."""
    label: str
    tooltip: str
    framed: bool = False


def heatmap(cells: Mapping[tuple[str, str], Cell], axes: tuple[str, str], width: int, colour: str, title: str) -> str:
    """Draw cells by (column, row), in the order in which columns and rows first occur.

    Args:
        cells: what to draw; combinations without a cell stay empty.
        axes: what columns and rows are.
        width: pixels.
        colour: the CSS class of the colour.
        title: for screen readers.
    """
    columns, rows = (list(dict.fromkeys(key[axis] for key in cells)) for axis in (0, 1))
    left, top = 14.0 + 8 * max(map(len, rows)), 44.0
    cell_width = min(MAX_CELL_WIDTH, (width - left) / len(columns))
    parts = [text(0, 12, axes[1], "axis-label"), text(width, 12, axes[0], "axis-label", "end")]
    step = int(24 // cell_width) + 1
    parts += (
        text(left + (index + 0.5) * cell_width, top - 10, columns[index], "label", "middle")
        for index in range(0, len(columns), step)
    )
    for index, row in enumerate(rows):
        parts.append(text(left - 10, top + (index + 0.5) * ROW_HEIGHT + 4, row, "label", "end"))
    for (column, row), cell in cells.items():
        x, y = left + columns.index(column) * cell_width, top + rows.index(row) * ROW_HEIGHT
        parts.append(with_tooltip(cell.tooltip, *_draw(cell, x, y, cell_width, colour)))
    return svg(parts, width, top + ROW_HEIGHT * len(rows) + 2, title)


def _draw(cell: Cell, x: float, y: float, width: float, colour: str) -> Sequence[str]:
    box = (x + 1, y + 1, width - 2, ROW_HEIGHT - 2)
    if cell.depth is None:
        parts = [rect(*box, "cell-empty", rx=3)]
    else:
        opacity = FAINTEST + (DEEPEST - FAINTEST) * cell.depth
        parts = [rect(*box, f"fill {colour}", rx=3, fill_opacity=f"{opacity:.2f}")]
    if width >= READABLE_WIDTH:
        parts.append(text(x + width / 2, y + ROW_HEIGHT / 2 + 4, cell.label, "tick", "middle"))
    return [*parts, rect(*box, "chosen", rx=3)] if cell.framed else parts
