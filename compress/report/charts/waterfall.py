"""Factors that multiply to a total, one bar below the other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from compress.report.charts.svg import LETTER_WIDTH, line, rect, svg, text


@dataclass(frozen=True)
class Factor:
    """One bar."""

    label: str
    detail: str
    value: float
    shown: str
    colour: str
    """The CSS class of its colour."""


def waterfall(factors: Sequence[Factor], width: int) -> str:
    """Draw factors on a logarithmic axis, each from where the one before it ends; the last one is the total."""
    row_height, top, space = 46, 4, width - 64
    ends = [0.0]
    for factor in factors[:-1]:
        ends.append(ends[-1] + math.log(factor.value))
    low, high = min(ends), max(*ends, math.log(1.05))
    positions = [(end - low) / (high - low) * space for end in ends]
    spans = [*pairwise(positions), (positions[0], positions[-1])]
    parts = []
    for index, (factor, span) in enumerate(zip(factors, spans, strict=True)):
        y = top + index * row_height
        begin, end = sorted(span)
        parts.append(text(0, y + 12, factor.label, "label strong"))
        parts.append(text(len(factor.label) * LETTER_WIDTH + 14, y + 12, factor.detail, "label quiet"))
        parts.append(rect(begin, y + 20, max(2.0, end - begin), 13, f"fill {factor.colour}", rx=3))
        parts.append(text(end + 8, y + 31, factor.shown, "value strong"))
        if index + 2 < len(factors):
            parts.append(line(span[1], y + 20, span[1], y + row_height + 20, "join"))
    return svg(parts, width, top + row_height * len(factors), "what each stage gained")
