"""The charts of a report, at the width in pixels at which they are shown, so that text keeps its size."""

from __future__ import annotations

import math
from collections.abc import Sequence

from compress.report import format_numbers as fmt
from compress.report.charts.svg import LETTER_WIDTH, Frame, line, marker, rect, text
from compress.report.charts.waterfall import Factor, waterfall
from compress.report.charts.xy_chart import Point, Series, xy_chart
from compress.report.report_schema import LedgerRow, Report, TargetResult
from compress.report.retention import larger_is_better, quality_on_test
from compress.report.speedup_breakdown import speedup, speedup_stages
from compress.report.tables.throughput_unit import timed_units

WIDE, NARROW = 680, 324
"""Pixels: next to another column on a desktop, and on a phone."""
COLOURS = 8
"""Colours of models that report.css defines."""


def colour_of(report: Report, model: str) -> int:
    """The number of a model's colour."""
    return [entry.name for entry in report.all_models].index(model) % COLOURS


def legend(report: Report) -> list[tuple[str, str]]:
    """Markers as SVG with their meaning: colours of models, shapes of variants, and hollow ones."""
    models = dict.fromkeys(row.model for row in report.rows)
    entries = [
        *((0, f"fill s{colour_of(report, name)}", name) for name in models),
        *((kind, "fill plain", name) for kind, name in enumerate(_variants(report))),
        (0, "hollow plain", "missed the gate"),
    ]
    frame = '<svg width="16" height="16" aria-hidden="true">{}</svg>'
    return [(frame.format(marker(kind, 8, 8, 5.5, classes)), name) for kind, classes, name in entries]


def speed_chart(report: Report, title: str, width: int) -> str | None:
    """Milliseconds a call (logarithmic) against the score on test; None if nothing was both timed and scored."""
    larger = larger_is_better(report, title)
    scale = 100.0 if larger else 1.0
    series = [one for row, result in report.results(title) if (one := _speed_series(report, row, result, title, scale))]
    if not series:
        return None
    points = [one.points[0] for one in series]
    teacher = next((one.points[0] for one in series if one.label == report.teacher), None)
    gate = teacher.y - (1 if larger else -1) * report.rules.max_drop * scale if teacher else None
    heights = [end for point in points for end in point.y_interval or ()] + ([] if gate is None else [gate])
    margin = (max(heights) - min(heights)) * 0.08 or abs(max(heights)) * 0.05 or 1.0
    times = [end for point in points for end in point.x_interval or ()]
    frame = Frame(
        width,
        340 if width > 500 else 300,
        (min(times) / 1.25, max(times) * 1.25),
        (min(heights) - margin, max(heights) + margin),
    )
    label = f"the gate: teacher {'−' if larger else '+'} {fmt.points(report.rules.max_drop, larger)}"
    background = [] if gate is None else _gate(frame, frame.y(gate), label)
    metric = f"{fmt.metric(report.task.metric)} on test" + ("" if larger else " (less is better)")
    return xy_chart(series, frame, "milliseconds a call, p50", metric, background)


def stage_chart(report: Report, title: str, key: str, width: int) -> str | None:
    """The factor of each stage from the teacher to ``key``; None if one of them was not timed."""
    stages, larger = speedup_stages(report, key, title), larger_is_better(report, title)
    total = speedup(stages[0].before, stages[-1].after, title) if stages else None
    if total is None or any(stage.speedup is None for stage in stages):
        return None
    factors = [
        Factor(
            stage.name,
            f"{fmt.signed(stage.score_change, larger)} {fmt.metric(report.task.metric)}, {fmt.seconds(stage.seconds)}",
            stage.speedup.value,
            fmt.ratio(stage.speedup.value),
            "lost" if stage.speedup.value < 1 else f"s{colour_of(report, stage.after.model)}",
        )
        for stage in stages
        if stage.speedup
    ]
    return waterfall([*factors, Factor("all together", "", total.value, fmt.ratio(total.value), "total")], width)


def reliability_chart(report: Report, title: str, key: str, width: int) -> str | None:
    """Confidence against the share of correct predictions, of the teacher and ``key``; None without confidences."""
    series = []
    for name in dict.fromkeys((report.teacher, key)):
        row, test = report.row(name), quality_on_test(report, name, title)
        if row is not None and test is not None and test.calibration is not None and test.calibration.bins:
            rows = sum(one.rows for one in test.calibration.bins)
            points = tuple(
                Point(
                    100 * one.confidence,
                    100 * one.correct,
                    f"{name}: {fmt.percent(one.confidence)} confidence, {fmt.percent(one.correct)} correct,"
                    f" {one.rows:,} predictions",
                    radius=2.5 + 8 * math.sqrt(one.rows / rows),
                )
                for one in test.calibration.bins
            )
            series.append(_series(report, row, points))
    if not series:
        return None
    lowest = min(value for one in series for point in one.points for value in (point.x, point.y))
    low = max(0.0, math.floor(lowest / 10) * 10 - 2.0)
    frame = Frame(width, width, (low, 102.0), (low, 102.0), x_log=False)
    diagonal = line(frame.x(low), frame.y(low), frame.x(100), frame.y(100), "diagonal")
    return xy_chart(series, frame, "confidence, %", "correct, %", [diagonal])


def load_chart(report: Report, title: str, width: int) -> str | None:
    """Throughput against the p95 of a call as callers are added, of the winner and the models it is compared with."""
    shown, series = compared_rows(report, title), []
    for row, result in report.results(title):
        points = tuple(
            Point(load.rows_per_second, load.p95, f"{row.key}: {load.callers}", radius=5.0, note=str(load.callers))
            for load in result.latency.under_load
            if load.p95 is not None
        )
        if points and row.key in shown:
            series.append(_series(report, row, points, labelled=True))
    if not series:
        return None
    everything = [point for one in series for point in one.points]
    x_range, y_range = _with_margin([point.x for point in everything]), _with_margin([point.y for point in everything])
    frame = Frame(width, 320 if width > 500 else 300, x_range, y_range, y_log=True)
    return xy_chart(series, frame, f"{timed_units(report)} a second", "p95, ms")


def compared_rows(report: Report, title: str) -> set[str]:
    """The winner, the teacher and the models of the verdict's comparisons; without a winner, the teacher's variant."""
    verdict, teacher = report.verdict(title), report.row(report.teacher)
    if verdict is None or verdict.winner is None:
        return {row.key for row in report.rows if teacher and row.variant == teacher.variant}
    return {verdict.winner, report.teacher, *(comparison.key for comparison in verdict.comparisons)}


def _variants(report: Report) -> list[str]:
    return list(dict.fromkeys(row.variant.name for row in report.rows))


def _series(report: Report, row: LedgerRow, points: Sequence[Point], **settings: bool) -> Series:
    marker_number = _variants(report).index(row.variant.name)
    return Series(row.key, tuple(points), colour_of(report, row.model), marker_number, **settings)


def _speed_series(report: Report, row: LedgerRow, result: TargetResult, title: str, scale: float) -> Series | None:
    if result.latency.model is None or result.test is None:
        return None
    speed, score, verdict = result.latency.model.p50, result.test.primary, report.verdict(title)
    point = Point(
        speed.value,
        score.value * scale,
        row.key,
        x_interval=(speed.low, speed.high),
        y_interval=(score.low * scale, score.high * scale),
    )
    labelled = row.key == report.teacher or (verdict is not None and row.key == verdict.winner)
    return _series(report, row, (point,), filled=result.gate is None or result.gate.passed, labelled=labelled)


def _gate(frame: Frame, y: float, label: str) -> list[str]:
    x = frame.right - 6 if len(label) * LETTER_WIDTH < frame.width else frame.right
    return [
        rect(frame.left, y, frame.right - frame.left, frame.bottom - y, "missed-area"),
        line(frame.left, y, frame.right, y, "gate"),
        text(x, y + 15, label, "gate-label", "end"),
    ]


def _with_margin(values: Sequence[float]) -> tuple[float, float]:
    return min(values) / 1.35, max(values) * 1.35
