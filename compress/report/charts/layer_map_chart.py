"""Which layers of the teacher a student's layers followed, drawn over how alike they were."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape

from compress.model_info import LayerMap
from compress.report.charts.heatmap import DEEP, FAINT
from compress.report.charts.overview_charts import NARROW, WIDE, models
from compress.report.charts.svg import box, svg, text
from compress.report.report_schema import Report

LEFT, TOP, TALL, WIDEST = 34.0, 44.0, 26.0, 56.0
"""Pixels: beside and above the cells, and of each."""
READABLE = 34.0
"""Pixels that a cell needs to hold its number."""


@dataclass(frozen=True)
class LayerPicture:
    """The map of one student for the page."""

    model: str
    told: str
    wide: str
    narrow: str


def layer_pictures(report: Report) -> list[LayerPicture]:
    """One for each student whose layers followed its teacher's."""
    colours = {name: place for place, name in enumerate(models(report))}
    return [
        LayerPicture(
            model, found.text, *(layer_figure(found, colours.get(model, 0), width) for width in (WIDE, NARROW))
        )
        for model, found in report.layer_maps.items()
    ]


def layer_figure(found: LayerMap, series: int, width: int) -> str:
    """Likeness as shaded cells, student down and teacher across; the pairs of the map are framed.

    Args:
        found: pairs, and the likeness of all where it is known.
        series: the colour of the student.
        width: pixels.
    """
    rows, columns = _size(found)
    wide = min(WIDEST, (width - LEFT) / columns)
    parts = [text(0, 12, "student's layer", "axis-label"), text(width, 12, "teacher's layer", "axis-label", "end")]
    every = int(24 // wide) + 1
    parts += (
        text(LEFT + (place + 0.5) * wide, TOP - 8, str(place), "label", "middle") for place in range(0, columns, every)
    )
    lowest = min((value for row in found.likeness for value in row), default=0.0)
    for row in range(rows):
        parts.append(text(LEFT - 8, TOP + (row + 0.5) * TALL + 4, str(row), "label", "end"))
        for column in range(columns):
            parts += _cell(found, row, column, wide, lowest, series)
    return svg("".join(parts), width, TOP + TALL * rows + 2, "which teacher layer each student layer followed")


def _cell(found: LayerMap, row: int, column: int, wide: float, lowest: float, series: int) -> Iterable[str]:
    x, y = LEFT + column * wide, TOP + row * TALL
    place, chosen = box(x + 1, y + 1, wide - 2, TALL - 2), (row, column) in found.pairs
    value = found.likeness[row][column] if found.likeness else None
    told = "" if value is None else f", CKA {value:.2f}"
    yield f"<g><title>{escape(f'student {row}, teacher {column}{told}')}</title>"
    if value is None:
        yield f'<rect class="cell-empty" rx="3" {place}/>'
    else:
        depth = FAINT + (DEEP - FAINT) * (value - lowest) / ((1 - lowest) or 1.0)
        yield f'<rect class="fill s{series}" fill-opacity="{depth:.2f}" rx="3" {place}/>'
        if wide >= READABLE:
            classes = "tick strong" if chosen else "tick"
            yield text(x + wide / 2, y + TALL / 2 + 4, f"{value:.2f}", classes, "middle")
    if chosen:
        yield f'<rect class="chosen" rx="3" {place}/>'
    yield "</g>"


def _size(found: LayerMap) -> tuple[int, int]:
    """Layers of the student and of the teacher; as far as the pairs tell where nothing else does."""
    if found.likeness:
        return len(found.likeness), len(found.likeness[0])
    ours, theirs = zip(*found.pairs, strict=True)
    return max(ours) + 1, max(theirs) + 1
