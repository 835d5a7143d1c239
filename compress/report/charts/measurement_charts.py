"""Pictures of what measuring found beyond one timing: calibration, the grid of batch and length, and load."""

from __future__ import annotations

from compress.measure.timing.latency import ratio
from compress.report.charts.heatmap import Cell, heat
from compress.report.charts.line_charts import Curve, Dot, load, reliability
from compress.report.charts.overview_charts import models, variants
from compress.report.format_numbers import format_milliseconds, format_percent, format_ratio
from compress.report.report_schema import LedgerRow, Report
from compress.report.retention import quality_on_test
from compress.report.tables.ledger_tables import verdict_of
from compress.report.tables.speed_tables import places
from compress.report.tables.throughput_unit import timed_units


def reliability_figure(report: Report, title: str, key: str, width: int) -> str | None:
    """How often the teacher and ``key`` are right at each confidence; None where no confidence is known."""
    curves = [curve for name in dict.fromkeys((report.teacher, key)) if (curve := _trust(report, title, name))]
    if not curves:
        return None
    return reliability(curves, ("confidence, %", "right, %"), width)


def load_figure(report: Report, title: str, width: int) -> str | None:
    """Throughput against p95 of the winner and what it is compared with; None where no load was put on them."""
    shown = compared(report, title)
    curves = []
    for row, place in places(report, title):
        dots = tuple(
            Dot(found.rows_per_second, found.p95, str(found.callers))
            for found in place.latency.under_load
            if found.p95 is not None
        )
        if dots and row.key in shown:
            curves.append(Curve(row.key, dots, *_looks(report, row)))
    return load(curves, (f"{timed_units(report)} a second", "p95, ms"), width) if curves else None


def grid_figure(report: Report, title: str, key: str, width: int) -> str | None:
    """How many times faster ``key`` is than the reference by batch and length; None where no grid was asked for."""
    row, cells = report.row(key), {}
    if row is None or key == report.teacher:
        return None
    for cell in report.grid.get(title, ()):
        ours, theirs = cell.latencies.get(key), cell.latencies.get(report.teacher)
        if ours is None or ours.model is None:
            continue
        gain = ratio(theirs, ours) if theirs else None
        told = format_ratio(gain.value if gain else None)
        hint = "≈ " if ours.status == "unstable" or (theirs and theirs.status == "unstable") else ""
        cells[(str(cell.batch), str(cell.length))] = Cell(
            gain.value if gain else None, hint + told, format_milliseconds(ours.model.p50.value)
        )
    if not cells:
        return None
    columns, rows = (list(dict.fromkeys(name[axis] for name in cells)) for axis in (0, 1))
    return heat(cells, columns, rows, ("batch", "pieces"), _looks(report, row)[0], width)


def compared(report: Report, title: str) -> set[str]:
    """The winner, the reference and the baselines of the verdict: as many rows as one picture can hold."""
    verdict = verdict_of(report, title)
    if verdict is None or verdict.winner is None:
        return {row.key for row in report.rows if row.variant == _reference_variant(report)}
    return {verdict.winner, report.teacher, *(found.key for found in verdict.comparisons)}


def _reference_variant(report: Report) -> object:
    reference = report.row(report.teacher)
    return reference.variant if reference else None


def _trust(report: Report, title: str, key: str) -> Curve | None:
    row, test = report.row(key), quality_on_test(report, key, title)
    if row is None or test is None or test.calibration is None or not test.calibration.bins:
        return None
    rows = sum(each.rows for each in test.calibration.bins)
    dots = tuple(
        Dot(
            100 * each.confidence,
            100 * each.correct,
            f"{format_percent(each.confidence)} sure, {format_percent(each.correct)} right, {each.rows:,} answers",
            each.rows / rows,
        )
        for each in test.calibration.bins
    )
    return Curve(key, dots, *_looks(report, row))


def _looks(report: Report, row: LedgerRow) -> tuple[int, int]:
    """The colour and the mark of a row."""
    return models(report).index(row.model), variants(report).index(row.variant.name)
