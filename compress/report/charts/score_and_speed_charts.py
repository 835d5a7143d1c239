"""Charts with two numeric axes: score against speed, reliability, and the latency table of a goal of speed-up.

They are drawn at the width in pixels at which they are shown, so that text keeps its size.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from compress import format_numbers as fmt
from compress.prune.latency_table import SpeedupResult
from compress.report.charts.svg import Frame, element, line, marker, rect, svg, text, with_tooltip
from compress.report.report_schema import LedgerRow, Report
from compress.report.retention import larger_is_better, quality_on_test
from compress.report.speedup_breakdown import fastest_variant
from compress.select.ledger import TargetResult

LABEL, LABEL_HEIGHT, CHARACTER = "label strong outlined", 14.0, 7.0
"""How labels are drawn, the height of a line, and about the width of a character."""


@dataclass(frozen=True)
class Point:
    """One marker."""

    x: float
    y: float
    tooltip: str
    x_interval: tuple[float, float] | None = None
    y_interval: tuple[float, float] | None = None
    radius: float = 6.0


@dataclass(frozen=True)
class Series:
    """The points of one row of the ledger, joined by a line."""

    label: str
    points: tuple[Point, ...]
    colour: int
    """The number of the model's colour."""
    marker: int
    """The number of the variant's marker."""
    filled: bool = True
    """False for rows that missed the gate."""
    labelled: bool = False
    """Whether its label is printed at the last point; the legend and tooltips name the others."""


def xy_chart(series: Sequence[Series], frame: Frame, x_label: str, y_label: str, background: Sequence[str] = ()) -> str:
    """Draw series over their axes; ``background`` is drawn below them."""
    parts = [*frame.axes(x_label, y_label), *background]
    for one in sorted(series, key=lambda one: one.labelled):
        if len(one.points) > 1:
            path = " ".join(f"{frame.x(point.x):.1f},{frame.y(point.y):.1f}" for point in one.points)
            parts.append(f'<polyline class="curve s{one.colour}" points="{path}"/>')
        parts += (with_tooltip(point.tooltip, *_marks(point, one, frame), name=one.label) for point in one.points)
    return svg([*parts, *_labels(series, frame)], frame.width, frame.height, f"{y_label} against {x_label}")


def _marks(point: Point, series: Series, frame: Frame) -> Iterable[str]:
    x, y, colour = frame.x(point.x), frame.y(point.y), f"s{series.colour}"
    if point.y_interval:
        yield line(x, frame.y(point.y_interval[0]), x, frame.y(point.y_interval[1]), f"whisker {colour}")
    if point.x_interval:
        yield line(frame.x(point.x_interval[0]), y, frame.x(point.x_interval[1]), y, f"whisker {colour}")
    yield marker(series.marker, x, y, point.radius, f"{'fill' if series.filled else 'hollow'} mark {colour}")


def _labels(series: Sequence[Series], frame: Frame) -> Iterable[str]:
    """Print labels from top to bottom on the side of their points with more space, each below the one before.

    One that is too long for that side has a line for the model and one for the variant, from the edge of the chart.
    """
    lowest = -LABEL_HEIGHT
    ends = ((one.label, frame.x(one.points[-1].x), frame.y(one.points[-1].y)) for one in series if one.labelled)
    for label, x, y in sorted(ends, key=lambda end: end[2]):
        lowest = max(y + 4, lowest + LABEL_HEIGHT)
        on_left = x > (frame.left + frame.right) / 2
        room = x - 14 - frame.left if on_left else frame.right - x - 14
        if len(label) * CHARACTER <= room:
            yield text(x - 14 if on_left else x + 14, lowest, label, LABEL, "end" if on_left else "start")
            continue
        model, slash, variant = label.partition("/")
        edge, anchor = (frame.left + 4, "start") if on_left else (frame.right, "end")
        for part in filter(None, (model + slash, variant)):
            yield text(edge, lowest, part, LABEL, anchor)
            lowest += LABEL_HEIGHT
        lowest -= LABEL_HEIGHT


WIDE, NARROW = 680, 324
"""Pixels: next to another column on a desktop, and on a phone."""
HEIGHT = 320
STYLE = Path(__file__).parents[1] / "pages" / "templates" / "report.css"
COLOURS = 8
"""Colours of models that report.css defines."""


def colour_of(report: Report, model: str) -> int:
    """The number of a model's colour."""
    named = [*(entry.name for entry in report.models), *(row.model for row in report.rows)]  # cascades come after
    return list(dict.fromkeys(named)).index(model) % COLOURS


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


def speed_picture(report: Report, title: str) -> str | None:
    """The speed chart as a file of its own, in which the fastest row of each model has its name."""
    models = dict.fromkeys(row.model for row in report.rows)
    fastest = [row.key for model in models if (row := fastest_variant(report, model, title))]
    chart = speed_chart(report, title, WIDE, labelled=fastest)
    style = element("style", STYLE.read_text(encoding="utf-8"))
    return chart and chart.replace(">", f">{style}{rect(0, 0, WIDE, HEIGHT, 'paper')}", 1)


AXES = {"p50": "milliseconds a call, p50", "size": "megabytes"}
"""What a score is drawn against."""


def speed_chart(
    report: Report, title: str, width: int, labelled: Collection[str] = (), axis: str = "p50"
) -> str | None:
    """The score on test against milliseconds a call, or megabytes (logarithmic); None where nothing has both.

    Args:
        report: the report.
        title: of the target.
        width: in pixels.
        labelled: rows whose names are printed beside those of the teacher and the winner.
        axis: one of `AXES`.
    """
    larger = larger_is_better(report, title)
    scale = 100.0 if larger else 1.0
    verdict = report.verdict(title)
    named = {report.teacher, verdict.winner if verdict else None, *labelled}
    series = [
        one for row, result in report.rows_at(title) if (one := _speed_series(report, row, result, named, scale, axis))
    ]
    if not series:
        return None
    points = [one.points[0] for one in series]
    teacher = next((one.points[0] for one in series if one.label == report.teacher), None)
    gate = teacher.y - (1 if larger else -1) * report.rules.max_drop * scale if teacher else None
    heights = [end for point in points for end in point.y_interval or ()] + ([] if gate is None else [gate])
    margin = (max(heights) - min(heights)) * 0.08 or abs(max(heights)) * 0.05 or 1.0
    times = [end for point in points for end in point.x_interval or (point.x,)]
    y_range = (min(heights) - margin, max(heights) + margin)
    frame = Frame(width, HEIGHT, (min(times) / 1.25, max(times) * 1.25), y_range)
    label = f"the gate: teacher {'−' if larger else '+'} {fmt.points(report.rules.max_drop, larger)}"
    background = [] if gate is None else _gate(frame, frame.y(gate), label, larger)
    metric = f"{fmt.metric(report.task.metric)} on test" + ("" if larger else " (less is better)")
    by_mean = axis == "p50" and any(result.latency.by_mean for _, result in report.rows_at(title))
    return xy_chart(series, frame, AXES[axis] + (" (cascades: mean)" if by_mean else ""), metric, background)


def reliability_chart(report: Report, title: str, key: str) -> str | None:
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
    frame = Frame(NARROW, NARROW, (low, 102.0), (low, 102.0), x_log=False)
    diagonal = line(frame.x(low), frame.y(low), frame.x(100), frame.y(100), "diagonal")
    return xy_chart(series, frame, "confidence, %", "correct, %", [diagonal])


def _variants(report: Report) -> list[str]:
    return list(dict.fromkeys(row.variant.name for row in report.rows))


def _series(report: Report, row: LedgerRow, points: Sequence[Point], **settings: bool) -> Series:
    marker_number = _variants(report).index(row.variant.name)
    return Series(row.key, tuple(points), colour_of(report, row.model), marker_number, **settings)


def _speed_series(
    report: Report, row: LedgerRow, result: TargetResult, named: Collection[str | None], scale: float, axis: str
) -> Series | None:
    speed, size = result.latency.typical(), row.bytes_total
    if result.test is None or (speed if axis == "p50" else size) is None:
        return None
    score = result.test.primary
    timed = speed is not None and axis == "p50"
    figures = [fmt.score(score.value, result.test.larger_is_better), fmt.milliseconds(speed.value if speed else None)]
    point = Point(
        speed.value if speed is not None and axis == "p50" else (size or 0) / 1e6,
        score.value * scale,
        f"{row.key}: {', '.join([*figures, fmt.size(size)])}",
        x_interval=(speed.low, speed.high) if speed is not None and timed else None,
        y_interval=(score.low * scale, score.high * scale),
    )
    missed = result.gate is not None and result.gate.outcome == "missed"
    return _series(report, row, (point,), filled=not missed, labelled=row.key in named)


def _gate(frame: Frame, y: float, label: str, larger_is_better: bool) -> list[str]:
    """The gate as a line, and what misses it: what is below, above it for errors."""
    top, bottom = (y, frame.bottom) if larger_is_better else (frame.top, y)
    return [
        rect(frame.left, top, frame.right - frame.left, bottom - top, "missed-area"),
        line(frame.left, y, frame.right, y, "gate"),
        text(frame.right - 6, y + 15 if larger_is_better else y - 6, label, "gate-label", "end"),
    ]


CURVE_HEIGHT = 220


def training_chart(report: Report, model: str, width: int) -> str | None:
    """The score on select during a training, or its loss where nothing was scored; None without evaluations."""
    history = report.curves.get(model, ())
    larger = larger_is_better(report)
    scale = 100.0 if larger else 1.0
    scores = [(each.epoch, each.score * scale) for each in history if each.score is not None]
    losses = [(each.epoch, sum(each.losses.values())) for each in history if each.losses]
    points, what = (scores, f"{fmt.metric(report.task.metric)} on select") if len(scores) > 1 else (losses, "loss")
    if len(points) < 2 or points[0][0] == points[-1][0]:
        return None
    heights = [y for _, y in points]
    margin = (max(heights) - min(heights)) * 0.1 or abs(heights[0]) * 0.05 or 1.0
    frame = Frame(
        width,
        CURVE_HEIGHT,
        (0.0, points[-1][0] * 1.02),
        (min(heights) - margin, max(heights) + margin),
        x_log=False,
    )
    listed = tuple(Point(x, y, f"epoch {x:.3g}: {what} {y:.4g}", radius=3.0) for x, y in points)
    return xy_chart([Series(model, listed, colour_of(report, model), DISC)], frame, "epochs", what)


TABLE_HEIGHT = 220
DISC, DIAMOND = 0, 2


def latency_charts(reached: SpeedupResult, colour: int) -> list[str]:
    """Return a chart for heads and one for neurons, on one scale and as wide as a phone; what layers keep is hollow."""
    table, kept = reached.table, reached.attempts[reached.chosen]
    slowest = max([*table.attention.values(), *table.ffn.values()]) or 1.0
    return [
        _chart("heads", table.attention, table.attention_times, kept.heads, slowest, colour),
        _chart("FFN neurons", table.ffn, table.ffn_times, kept.ffn, slowest, colour),
    ]


def _chart(
    units: str,
    times: Mapping[int, float],
    interpolate: Callable[[Sequence[int]], list[float]],
    kept: Sequence[int],
    slowest: float,
    colour: int,
) -> str:
    frame = Frame(NARROW, TABLE_HEIGHT, (0.0, max(times) * 1.05), (0.0, slowest * 1.1), x_log=False)
    listed = [Point(size, times[size], _tooltip(size, units, times[size]), radius=3.0) for size in sorted(times)]
    series = [Series(units, tuple(listed), colour, DISC)]
    for layer, (size, time) in enumerate(zip(kept, interpolate(kept), strict=True)):
        if size:
            point = Point(size, time, f"layer {layer} keeps {_tooltip(size, units, time)}")
            series.append(Series(f"layer {layer}", (point,), colour, DIAMOND, filled=False))
    return xy_chart(series, frame, units, "ms a layer")


def _tooltip(size: int, units: str, time: float) -> str:
    return f"{size:,} {units}: {fmt.milliseconds(time)}"
