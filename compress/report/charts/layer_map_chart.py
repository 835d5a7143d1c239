"""The layer map of a distilled model: the similarity of every two layers as a shaded cell, compared pairs framed."""

from __future__ import annotations

from compress.model_history import LayerMap
from compress.report.charts.svg import rect, svg, text, with_tooltip

FAINTEST, DEEPEST = 0.10, 0.50
"""Opacity of the lowest similarity and of 1; text is hard to read on more."""
ROW_HEIGHT, MAX_CELL_WIDTH = 26.0, 56.0
READABLE_WIDTH = 34.0
"""Pixels that a cell needs to hold its text."""


def layer_map_chart(layers: LayerMap, colour: int, width: int) -> str:
    """CKA similarity of student and teacher layers; empty cells where it was not measured."""
    if layers.likeness:
        depth, teacher_depth = len(layers.likeness), len(layers.likeness[0])
    else:
        depth, teacher_depth = (max(pair[side] for pair in layers.pairs) + 1 for side in (0, 1))
    lowest = min((value for row in layers.likeness for value in row), default=0.0)
    left, top = 14.0 + 8 * len(str(depth - 1)), 44.0
    cell_width = min(MAX_CELL_WIDTH, (width - left) / teacher_depth)
    parts = [text(0, 12, "student's layer", "axis-label"), text(width, 12, "teacher's layer", "axis-label", "end")]
    parts += (
        text(left + (column + 0.5) * cell_width, top - 10, str(column), "label", "middle")
        for column in range(0, teacher_depth, int(24 // cell_width) + 1)
    )
    parts += (text(left - 10, top + (row + 0.5) * ROW_HEIGHT + 4, str(row), "label", "end") for row in range(depth))
    for row, column in ((row, column) for row in range(depth) for column in range(teacher_depth)):
        x, y = left + column * cell_width, top + row * ROW_HEIGHT
        box = (x + 1, y + 1, cell_width - 2, ROW_HEIGHT - 2)
        tooltip, cell = f"student {row}, teacher {column}", [rect(*box, "cell-empty", rx=3)]
        if layers.likeness:
            value = layers.likeness[row][column]
            opacity = FAINTEST + (DEEPEST - FAINTEST) * (value - lowest) / ((1 - lowest) or 1.0)
            tooltip, cell = (
                f"{tooltip}, CKA {value:.2f}",
                [rect(*box, f"fill s{colour}", rx=3, fill_opacity=f"{opacity:.2f}")],
            )
            if cell_width >= READABLE_WIDTH:
                cell.append(text(x + cell_width / 2, y + ROW_HEIGHT / 2 + 4, f"{value:.2f}", "tick", "middle"))
        if (row, column) in layers.pairs:
            cell.append(rect(*box, "chosen", rx=3))
        parts.append(with_tooltip(tooltip, *cell))
    return svg(parts, width, top + ROW_HEIGHT * depth + 2, "layer map")
