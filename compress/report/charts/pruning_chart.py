"""Heat maps of a pruned model: the importance of heads and of blocks of FFN neurons by layer, what was kept framed.

The numbers of dropped layers are pale.
"""

from __future__ import annotations

from collections.abc import Sequence

from compress import format_numbers as fmt
from compress.report.charts.svg import rect, svg, text, with_tooltip
from compress.report.pruned_units import PrunedStructure, PrunedUnits

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
