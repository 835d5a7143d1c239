"""The facts of a report as rows of words: one source for the terminal, the Markdown page and the HTML page."""

from __future__ import annotations

from compress.measure.quality.quality_result import Quality
from compress.measure.timing.latency import ratio
from compress.report.format_numbers import (
    ABSENT,
    NOT_MEANINGFUL,
    drop_article,
    format_metric,
    format_percent,
    format_points,
    format_ratio,
    format_seconds,
    format_signed,
    format_size,
)
from compress.report.report_schema import LedgerRow, Report, StepCost, TargetResult, Verdict
from compress.report.retention import teacher_beats_baseline
from compress.report.speedup_breakdown import speedup, speedup_stages
from compress.report.tables.quality_tables import changed, scored
from compress.report.tables.speed_tables import p50_of
from compress.report.tables.table_type import Cells, Table


def ledger(report: Report, title: str) -> Table:
    """A run's table at one target: a row a model and variant, what it cost and what it gained."""
    verdict = verdict_of(report, title)
    metric = f"{format_metric(report.task.metric)} (95 %)"
    columns = ("model", "variant", metric, "vs teacher", "p50", "faster", "size", "cost", "gate")
    rows: list[Cells] = []
    winner: int | None = None
    for row in report.rows:
        place = row.targets.get(title)
        if place is None and row.status == "ok":
            continue  # this variant does not run on such a device
        if verdict and row.key == verdict.winner:
            winner = len(rows)
        rows.append(_ledger_row(report, row, place, title, metric, is_winner=winner == len(rows)))
    if report.floor:
        rows.append(_floor_row(report, report.floor, metric, columns))
    numeric = frozenset({metric, "vs teacher", "p50", "faster", "size", "cost"})
    return Table(columns, tuple(rows), numeric, winner)


def _ledger_row(
    report: Report, row: LedgerRow, place: TargetResult | None, title: str, metric: str, *, is_winner: bool
) -> Cells:
    test = place.test if place else None
    reference = report.row(report.teacher)
    faster = speedup(reference, row, title) if reference and reference is not row else None
    untimed = _untimed(place)
    return {
        "model": row.model,
        "variant": row.variant.name,
        metric: scored(test),
        "vs teacher": difference(test) if row.key != report.teacher else ABSENT,
        "p50": p50_of(place.latency) if place and not untimed else untimed or ABSENT,
        "faster": format_ratio(faster.value) if faster else untimed or ABSENT,
        "size": format_size(row.footprint.bytes_total if row.footprint else None),
        "cost": format_seconds(row.cost_seconds),
        "gate": "winner" + _shaky(place) if is_winner else standing(report, row, place),
    }


def _floor_row(report: Report, floor: Quality, metric: str, columns: tuple[str, ...]) -> Cells:
    return {
        **dict.fromkeys(columns, ABSENT),
        "model": drop_article(report.floor_name),
        metric: scored(floor),
        "vs teacher": difference(floor),
        "gate": "floor",
    }


def standing(report: Report, row: LedgerRow, place: TargetResult | None) -> str:
    """What became of a row, in a few words."""
    if row.status != "ok":
        return row.status
    if place is not None and not place.latency.timed and place.select is None:
        return place.latency.status
    if row.key == report.teacher:
        return "reference"
    if place is None or place.gate is None:
        return "baseline"
    return ("passed" if place.gate.passed else "missed") + _shaky(place)


def _untimed(place: TargetResult | None) -> str:
    """What stands in the columns of a timing that is not there, though the row was scored."""
    if place is None or place.latency.timed or place.select is None:
        return ""
    return "failed" if place.latency.status == "failed" else "not timed"


def _shaky(place: TargetResult | None) -> str:
    return ", unstable" if place is not None and place.latency.status == "unstable" else ""


def difference(quality: Quality | None) -> str:
    """The difference to the teacher."""
    return changed(quality.versus_teacher, quality.larger_is_better) if quality else ABSENT


def verdict_of(report: Report, title: str) -> Verdict | None:
    """The verdict at one target, once it is judged."""
    return next((verdict for verdict in report.verdicts if verdict.target == title), None)


def stages(report: Report, title: str, key: str) -> Table:
    """What each stage on the way to ``key`` cost and gained at a target."""
    metric = format_metric(report.task.metric)
    columns = ("stage", "row", "faster", "95 %", "smaller", metric, "took")
    larger, links = _larger(report), speedup_stages(report, key, title)
    rows = tuple(
        {
            "stage": link.stage,
            "row": link.after.key,
            "faster": format_ratio(link.speedup.value if link.speedup else None),
            "95 %": f"{format_ratio(link.speedup.low)} to {format_ratio(link.speedup.high)}"
            if link.speedup
            else ABSENT,
            "smaller": format_ratio(link.smaller),
            metric: format_signed(link.gained, larger),
            "took": format_seconds(link.seconds),
        }
        for link in links
    )
    start = {**dict.fromkeys(columns, ABSENT), "stage": "as it runs today", "row": report.teacher}
    return Table(columns, (start, *rows) if rows else (), frozenset(columns[2:]))


def comparisons(report: Report, verdict: Verdict) -> Table:
    """The winner beside every baseline, the model alone and with reading texts and decoding answers."""
    columns = ("against", "row", "faster", "95 %", "end to end", "smaller", "score kept", "above the floor")
    rows = tuple(
        {
            "against": found.against,
            "row": found.key,
            "faster": format_ratio(found.speedup.value if found.speedup else None),
            "95 %": f"{format_ratio(found.speedup.low)} to {format_ratio(found.speedup.high)}"
            if found.speedup
            else ABSENT,
            "end to end": format_ratio(_end_to_end(report, verdict, found.key)),
            "smaller": format_ratio(found.smaller),
            "score kept": format_percent(found.kept),
            "above the floor": format_percent(found.kept_above_floor)
            if teacher_beats_baseline(report, verdict.target) is not False
            else NOT_MEANINGFUL,
        }
        for found in verdict.comparisons
    )
    return Table(columns, rows, frozenset(columns[2:]))


def _end_to_end(report: Report, verdict: Verdict, key: str) -> float | None:
    """How many times faster the winner is from texts to answers; None at a fixed length, which no text has."""
    winner, other = report.row(verdict.winner or ""), report.row(key)
    if winner is None or other is None or verdict.target not in other.targets:
        return None
    found = ratio(other.targets[verdict.target].latency, winner.targets[verdict.target].latency, "end_to_end")
    return found.value if found else None


def gates(report: Report, title: str) -> Table:
    """What every candidate lost on select, and what was allowed."""
    columns = ("model", "variant", "lost on select", "allowed", "passed", "why not")
    larger = _larger(report)
    rows = []
    for row in report.rows:
        place = row.targets.get(title)
        if place is not None and place.gate is not None:
            rows.append(
                {
                    "model": row.model,
                    "variant": row.variant.name,
                    "lost on select": format_points(place.gate.drop, larger),
                    "allowed": format_points(place.gate.allowed, larger),
                    "passed": "yes" if place.gate.passed else "no",
                    "why not": "; ".join(place.gate.reasons) or ABSENT,
                }
            )
    return Table(columns, tuple(rows), frozenset({"lost on select", "allowed"}), texts=frozenset({"why not"}))


def costs(report: Report) -> Table:
    """The steps of the run and what they took."""
    rows = tuple(
        {"step": step.name, "took": format_seconds(step.seconds), "state": _state(step)} for step in report.steps
    )
    return Table(("step", "took", "state"), rows, frozenset({"took"}))


def _state(step: StepCost) -> str:
    if step.status != "ok":
        return f"{step.status}: {step.reason}" if step.reason else step.status
    return "from an earlier run" if step.reused else "done"


def _larger(report: Report) -> bool:
    """The direction of the primary metric, as every quality of the report knows it."""
    qualities = (place.test or place.select for row in report.rows for place in row.targets.values())
    return next((quality.larger_is_better for quality in qualities if quality is not None), True)
