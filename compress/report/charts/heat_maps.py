"""Heat maps by layer: what pruning kept of heads and FFN neurons, the layer map of a distilled model, any matrix.

A shaded cell is the importance of units, or the similarity of two layers; what was kept or compared is framed.
"""

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
Box = tuple[float, float, float, float]
"""Left, top, width, height."""


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
            tooltip = f"{tooltip}, CKA {value:.2f}"
            cell = _shaded_cell(box, colour, (value - lowest) / ((1 - lowest) or 1.0), f"{value:.2f}")
        if (row, column) in layers.pairs:
            cell.append(rect(*box, "chosen", rx=3))
        parts.append(with_tooltip(tooltip, *cell))
    return svg(parts, width, top + PAIR_HEIGHT * depth + 2, "layer map")


def _shaded_cell(box: Box, colour: int, shade: float, label: str) -> list[str]:
    """Return a cell shaded from 0 to 1, with its text where it is wide enough."""
    x, y, width, height = box
    opacity = LOWEST_OPACITY + (HIGHEST_OPACITY - LOWEST_OPACITY) * min(1.0, max(0.0, shade))
    drawn = [rect(*box, f"fill s{colour}", rx=3, fill_opacity=f"{opacity:.2f}")]
    if width + 2 >= READABLE_WIDTH:
        drawn.append(text(x + width / 2, y + height / 2 + 4, label, "tick", "middle"))
    return drawn


ROW_LABEL, COLUMN_LABEL, SMALLEST_CELL = 8.6, 52.0, 6.0
"""Pixels of a character of a label; of the head of a map whose columns have names; of a cell."""
LARGE = 1.5
"""Values above it have one digit."""


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
    height = PAIR_HEIGHT if cell >= READABLE_WIDTH / 2 else cell
    top, parts = _column_heads(matrix.columns, left, cell)
    every = int(14 // height) + 1
    for row, name in enumerate(matrix.rows[::every]):
        parts.append(text(left - 8, top + (row * every + 0.5) * height + 4, name, "label", "end"))
    for row, values in enumerate(matrix.values):
        for column, value in enumerate(values):
            if value is not None:
                box = (left + column * cell + 0.5, top + row * height + 0.5, cell - 1, height - 1)
                parts += _matrix_cell(matrix, (row, column), value, box, colour)
    size = max(width, left + cell * len(matrix.columns)), top + height * len(matrix.rows) + 2
    return svg(parts, *size, matrix.title)


def _column_heads(names: Sequence[str], left: float, cell: float) -> tuple[float, list[str]]:
    """Return the height of the columns' names, and these: numbers that fit, or words in lines that take turns."""
    every = int(ROW_LABEL * max(map(len, names)) // cell) + 1
    if every > 1 and not all(name.replace(".", "").isdigit() for name in names):
        lines = [(number, 12 + 14 * (number % 3)) for number in range(len(names))]
        height = COLUMN_LABEL
    else:
        lines = [(number, 16) for number in range(0, len(names), every)]
        height = 26.0
    return height, [text(left + (number + 0.5) * cell, y, names[number], "label", "middle") for number, y in lines]


def _matrix_cell(matrix: Matrix, place: tuple[int, int], value: float, box: Box, colour: int) -> list[str]:
    row, column = place
    shade = (matrix.shades or matrix.values)[row][column]
    shown = f"{value:.1f}" if abs(value) > LARGE else f"{value:.2f}"
    drawn = _shaded_cell(box, colour, shade or 0.0, shown)
    if place in matrix.framed:
        drawn.append(rect(*box, "chosen", rx=3))
    if box[3] < SMALLEST_CELL:  # too many, and too small to point at
        return drawn
    return [with_tooltip(f"{matrix.rows[row]}, {matrix.columns[column]}: {shown}", *drawn)]
