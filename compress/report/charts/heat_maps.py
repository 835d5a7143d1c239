"""Heat maps by layer: what pruning kept of heads and FFN neurons, the layer map of a distilled model, any matrix.

A shaded cell is the importance of units, or the similarity of two layers; what was kept or compared is framed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compress import format_numbers as fmt
from compress.model_folder.model_history import LayerMap
from compress.report.charts.svg import rect, svg, text, with_tooltip
from compress.report.run_facts import PrunedStructure, PrunedUnits

FAINTEST, DEEPEST = 0.05, 0.85
"""Opacity of no importance, and of the most important cell of a map."""
ROW_HEIGHT, MAX_CELL_WIDTH, TITLE_HEIGHT, GAP = 24.0, 30.0, 20.0, 18.0


def pruning_chart(structure: PrunedStructure, colour: int, width: int) -> str | None:
    """Return a map of heads and one of neurons; None where the importance of what was removed is unknown."""
    if not all(units.cells for units in (*structure.heads, *structure.ffn)):
        return None
    maps = {"heads": structure.heads, "FFN neurons in blocks, the most important first": structure.ffn}
    parts, top = list[str](), 0.0
    for title, layers in maps.items():
        parts += _heat_map(title, layers, colour, width, top)
        top += TITLE_HEIGHT + ROW_HEIGHT * len(layers) + GAP
    return svg(parts, width, top - GAP + 2, "what pruning kept")


def _heat_map(title: str, layers: Sequence[PrunedUnits], colour: int, width: int, top: float) -> list[str]:
    left = 14.0 + 8 * len(str(len(layers) - 1))
    cell_width = min(MAX_CELL_WIDTH, (width - left) / max(len(units.cells) for units in layers))
    largest = max(cell.importance for units in layers for cell in units.cells) or 1.0
    parts = [text(left, top + 12, title, "axis-label")]
    for layer, units in enumerate(layers):
        y = top + TITLE_HEIGHT + layer * ROW_HEIGHT
        parts.append(text(left - 10, y + ROW_HEIGHT / 2 + 4, str(layer), "label" if units.kept else "quiet", "end"))
        for column, cell in enumerate(units.cells):
            box = (left + column * cell_width + 1, y + 1, cell_width - 2, ROW_HEIGHT - 2)
            opacity = FAINTEST + (DEEPEST - FAINTEST) * (cell.importance / largest) ** 0.5
            tooltip = f"layer {layer}, {column}: importance {cell.importance:.3g}, {fmt.percent(cell.kept)} kept"
            drawn = [rect(*box, f"fill s{colour}", rx=3, fill_opacity=f"{opacity:.2f}")]
            if cell.kept:
                drawn.append(rect(box[0], box[1], box[2] * cell.kept, box[3], "chosen", rx=3))
            parts.append(with_tooltip(tooltip, *drawn))
    return parts


LOWEST_OPACITY, HIGHEST_OPACITY = 0.10, 0.50
"""Opacity of the lowest similarity and of 1; text is hard to read on more."""
PAIR_HEIGHT, MAX_PAIR_WIDTH = 26.0, 56.0
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
    cell_width = min(MAX_PAIR_WIDTH, (width - left) / teacher_depth)
    parts = [text(0, 12, "student's layer", "axis-label"), text(width, 12, "teacher's layer", "axis-label", "end")]
    parts += (
        text(left + (column + 0.5) * cell_width, top - 10, str(column), "label", "middle")
        for column in range(0, teacher_depth, int(24 // cell_width) + 1)
    )
    parts += (text(left - 10, top + (row + 0.5) * PAIR_HEIGHT + 4, str(row), "label", "end") for row in range(depth))
    for row, column in ((row, column) for row in range(depth) for column in range(teacher_depth)):
        x, y = left + column * cell_width, top + row * PAIR_HEIGHT
        box = (x + 1, y + 1, cell_width - 2, PAIR_HEIGHT - 2)
        tooltip, cell = f"student {row}, teacher {column}", [rect(*box, "cell-empty", rx=3)]
        if layers.likeness:
            value = layers.likeness[row][column]
            opacity = LOWEST_OPACITY + (HIGHEST_OPACITY - LOWEST_OPACITY) * (value - lowest) / ((1 - lowest) or 1.0)
            tooltip, cell = (
                f"{tooltip}, CKA {value:.2f}",
                [rect(*box, f"fill s{colour}", rx=3, fill_opacity=f"{opacity:.2f}")],
            )
            if cell_width >= READABLE_WIDTH:
                cell.append(text(x + cell_width / 2, y + PAIR_HEIGHT / 2 + 4, f"{value:.2f}", "tick", "middle"))
        if (row, column) in layers.pairs:
            cell.append(rect(*box, "chosen", rx=3))
        parts.append(with_tooltip(tooltip, *cell))
    return svg(parts, width, top + PAIR_HEIGHT * depth + 2, "layer map")


ROW_LABEL, COLUMN_LABEL, SMALLEST_CELL = 8.6, 52.0, 6.0
"""Pixels of a character of a label; of the head of a map whose columns have names; of a cell."""


@dataclass(frozen=True)
class Matrix:
    """A matrix that is drawn as a heat map."""

    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    values: Sequence[Sequence[float | None]]
    """None: there is no such cell."""
    shades: Sequence[Sequence[float | None]] | None = None
    """From 0 to 1; by default the values."""
    framed: frozenset[tuple[int, int]] = frozenset()


def matrix_chart(matrix: Matrix, colour: int, width: int) -> str:
    """Return a heat map whose cells hold their values where there is room."""
    left = 8 + ROW_LABEL * max(map(len, matrix.rows))
    cell = max(SMALLEST_CELL, min(MAX_PAIR_WIDTH, (width - left) / len(matrix.columns)))
    every = int(ROW_LABEL * max(map(len, matrix.columns)) // cell) + 1
    named = any(not name.replace(".", "").isdigit() for name in matrix.columns) and every > 1
    top = COLUMN_LABEL if named else 26.0
    height = min(PAIR_HEIGHT, max(SMALLEST_CELL, cell)) if cell < READABLE_WIDTH / 2 else PAIR_HEIGHT
    parts = list[str]()
    for number, name in enumerate(matrix.columns):
        x = left + (number + 0.5) * cell
        if named:  # alternating lines, so that long names do not overlap
            line = 12 + 14 * (number % 3)
            parts.append(text(x, line, name, "label", "middle"))
        elif number % every == 0:
            parts.append(text(x, top - 10, name, "label", "middle"))
    rows_every = int(14 // height) + 1
    for row, name in enumerate(matrix.rows):
        y = top + row * height
        if row % rows_every == 0:
            parts.append(text(left - 8, y + height / 2 + 4, name, "label", "end"))
        for column, value in enumerate(matrix.values[row]):
            if value is None:
                continue
            shade = (matrix.shades or matrix.values)[row][column] or 0.0
            opacity = LOWEST_OPACITY + (HIGHEST_OPACITY - LOWEST_OPACITY) * min(1.0, max(0.0, shade))
            box = (left + column * cell + 0.5, y + 0.5, cell - 1, height - 1)
            drawn = [rect(*box, f"fill s{colour}", rx=2, fill_opacity=f"{opacity:.2f}")]
            shown = f"{value:.1f}" if abs(value) > 1.5 else f"{value:.2f}"
            if cell >= READABLE_WIDTH:
                drawn.append(text(left + (column + 0.5) * cell, y + height / 2 + 4, shown, "tick", "middle"))
            if (row, column) in matrix.framed:
                drawn.append(rect(*box, "chosen", rx=2))
            parts.append(with_tooltip(f"{matrix.rows[row]}, {matrix.columns[column]}: {shown}", *drawn))
    return svg(parts, max(width, left + cell * len(matrix.columns)), top + height * len(matrix.rows) + 2, matrix.title)
