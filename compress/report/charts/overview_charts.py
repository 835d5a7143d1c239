"""What a report's charts show: from facts to points, bars and steps."""

from __future__ import annotations

from dataclasses import dataclass

from compress.report.charts.svg import glyph
from compress.report.charts.svg_charts import Bar, Point, Step, bars, speed_score, waterfall
from compress.report.format_numbers import (
    format_metric,
    format_points,
    format_ratio,
    format_seconds,
    format_signed,
    format_size,
)
from compress.report.report_schema import LedgerRow, Report
from compress.report.speedup_breakdown import speedup, speedup_stages
from compress.report.tables.ledger_tables import verdict_of

WIDE, NARROW = 680, 324
"""Pixels: beside another column on a desk, and on a phone."""


@dataclass(frozen=True)
class Mark:
    """An entry of the legend: a mark as SVG and what it stands for."""

    svg: str
    label: str


def models(report: Report) -> list[str]:
    """The models of the run in order; the place is the number of the colour."""
    return list(dict.fromkeys(row.model for row in report.rows))


def variants(report: Report) -> list[str]:
    """The variants of the run in order; the place is the number of the mark."""
    return list(dict.fromkeys(row.variant.name for row in report.rows))


def legend(report: Report) -> list[Mark]:
    """Colours for models, marks for variants, and what hollow means."""

    def mark(kind: int, classes: str) -> str:
        return f'<svg width="16" height="16" aria-hidden="true">{glyph(kind, 8, 8, 5.5, classes)}</svg>'

    colours = [Mark(mark(0, f"fill s{place}"), name) for place, name in enumerate(models(report))]
    shapes = [Mark(mark(place, "fill plain"), name) for place, name in enumerate(variants(report))]
    return [*colours, *shapes, Mark(mark(0, "hollow plain"), "missed the gate")]


def speed_figure(report: Report, title: str, width: int) -> str | None:
    """Speed against test score; None where nothing was both timed and scored."""
    points = [point for row in report.rows if (point := _point(report, row, title)) is not None]
    if not points:
        return None
    reference = next((point for point in points if point.label == report.teacher), None)
    sign = 1.0 if _larger(report, title) else -1.0
    allowed = report.rules.max_drop * _scale(report, title)
    gate = reference.y - sign * allowed if reference else None
    label = f"the gate: teacher {'−' if sign > 0 else '+'} {format_points(report.rules.max_drop, sign > 0)}"
    unit = f"{format_metric(report.task.metric)} on test" + ("" if sign > 0 else " (less is better)")
    return speed_score(points, gate, label, ("milliseconds a call, p50", unit), width)


def size_figure(report: Report, title: str, width: int) -> str | None:
    """Bytes of all files that predicting needs, a bar a row."""
    verdict = verdict_of(report, title)
    order = models(report)
    given = [
        Bar(
            label=row.key,
            value=float(row.footprint.bytes_total),
            shown=format_size(row.footprint.bytes_total),
            series=order.index(row.model),
            marked=verdict is not None and verdict.winner == row.key,
        )
        for row in report.rows
        if row.footprint is not None and title in row.targets
    ]
    return bars(given, width) if given else None


def stage_figure(report: Report, title: str, key: str, width: int) -> str | None:
    """How the winner's speed came about; None where a stage on the way was not timed."""
    links = speedup_stages(report, key, title)
    order = models(report)
    steps = []
    for link in links:
        if link.speedup is None:
            return None
        gained = f"{format_signed(link.gained, _larger(report, title))} {format_metric(report.task.metric)}"
        changed = f"{gained}, {format_seconds(link.seconds)}"
        steps.append(
            Step(
                link.stage,
                changed,
                link.speedup.value,
                format_ratio(link.speedup.value),
                order.index(link.after.model),
            )
        )
    if not steps:
        return None
    total = speedup(links[0].before, links[-1].after, title)
    return waterfall(steps, format_ratio(total.value if total else None), width)


def _point(report: Report, row: LedgerRow, title: str) -> Point | None:
    place, verdict = row.targets.get(title), verdict_of(report, title)
    if place is None or place.latency.model is None or place.test is None:
        return None
    speed, found, scale = place.latency.model.p50, place.test.primary, _scale(report, title)
    return Point(
        label=row.key,
        x=speed.value,
        x_low=speed.low,
        x_high=speed.high,
        y=found.value * scale,
        y_low=found.low * scale,
        y_high=found.high * scale,
        series=models(report).index(row.model),
        glyph=variants(report).index(row.variant.name),
        passed=place.gate is None or place.gate.passed,
        named=row.key == report.teacher or (verdict is not None and row.key == verdict.winner),
    )


def _larger(report: Report, title: str) -> bool:
    tests = (row.targets[title].test for row in report.rows if title in row.targets)
    return next((test.larger_is_better for test in tests if test is not None), True)


def _scale(report: Report, title: str) -> float:
    """Scores from 0 to 1 are drawn as points, errors as they are."""
    return 100.0 if _larger(report, title) else 1.0
