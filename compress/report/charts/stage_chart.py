"""The speedup of each stage as a bar on a logarithmic axis; the factors multiply to the total."""

from __future__ import annotations

import math
from itertools import pairwise

from compress.report import format_numbers as fmt
from compress.report.charts.report_charts import colour_of
from compress.report.charts.svg import LETTER_WIDTH, line, rect, svg, text
from compress.report.report_schema import Report
from compress.report.retention import larger_is_better
from compress.report.speedup_breakdown import speedup, speedup_stages

ROW_HEIGHT, TOP = 46, 4


def stage_chart(report: Report, title: str, key: str, width: int) -> str | None:
    """The stages from the teacher to ``key``, each from where the one before it ends; None if one was not timed."""
    stages, larger = speedup_stages(report, key, title), larger_is_better(report, title)
    total = speedup(stages[0].before, stages[-1].after, title) if stages else None
    factors = [stage.speedup.value for stage in stages if stage.speedup]
    if total is None or len(factors) < len(stages):
        return None
    ends = [0.0]
    for factor in factors:
        ends.append(ends[-1] + math.log(factor))
    low, high = min(ends), max(*ends, math.log(1.05))
    positions = [(end - low) / (high - low) * (width - 64) for end in ends]
    parts = []
    for index, (stage, factor, span) in enumerate(zip(stages, factors, pairwise(positions), strict=True)):
        y, colour = TOP + index * ROW_HEIGHT, f"s{colour_of(report, stage.after.model)}"
        change = f"{fmt.signed(stage.score_change, larger)} {fmt.metric(report.task.metric)}"
        detail = f"{change}, {fmt.seconds(stage.seconds)}"
        parts += _bar(stage.name, detail, factor, "lost" if factor < 1 else colour, span, y)
        if index + 1 < len(stages):
            parts.append(line(span[1], y + 20, span[1], y + ROW_HEIGHT + 20, "join"))
    height = TOP + ROW_HEIGHT * len(stages)
    parts += _bar("all together", "", total.value, "total", (positions[0], positions[-1]), height)
    return svg(parts, width, height + ROW_HEIGHT, "what each stage gained")


def _bar(label: str, detail: str, factor: float, colour: str, span: tuple[float, float], y: float) -> list[str]:
    begin, end = sorted(span)
    return [
        text(0, y + 12, label, "label strong"),
        text(len(label) * LETTER_WIDTH + 14, y + 12, detail, "label quiet"),
        rect(begin, y + 20, max(2.0, end - begin), 13, f"fill {colour}", rx=3),
        text(end + 8, y + 31, fmt.ratio(factor), "value strong"),
    ]
