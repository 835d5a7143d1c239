"""The facts of a report as rows of words: one source for the terminal, the Markdown page and the HTML page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from compress.measure.latency import Latency, Timing
from compress.measure.quality import Quality
from compress.report import words
from compress.report.chain import chain, speedup
from compress.report.result import AtTarget, LedgerRow, Report, StepCost, Verdict

Cells = Mapping[str, str]


@dataclass(frozen=True)
class Table:
    """Named columns and rows of words; ``winner`` is the number of the row to point out."""

    columns: tuple[str, ...]
    rows: tuple[Cells, ...]
    numeric: frozenset[str] = frozenset()
    """Columns that are set to the right."""
    winner: int | None = None


def ledger(report: Report, title: str) -> Table:
    """A run's table at one target: a row a model and variant, what it cost and what it gained."""
    verdict = verdict_of(report, title)
    metric = f"{report.task.metric} (95 %)"
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
        rows.append(_floor_row(report.floor, metric, columns))
    numeric = frozenset({metric, "vs teacher", "p50", "faster", "size", "cost"})
    return Table(columns, tuple(rows), numeric, winner)


def _ledger_row(
    report: Report, row: LedgerRow, place: AtTarget | None, title: str, metric: str, *, is_winner: bool
) -> Cells:
    test = place.test if place else None
    timing = place.latency.model if place else None
    reference = report.row(report.teacher)
    faster = speedup(reference, row, title) if reference and reference is not row else None
    return {
        "model": row.model,
        "variant": row.variant.name,
        metric: scored(test),
        "vs teacher": difference(test) if row.key != report.teacher else words.ABSENT,
        "p50": words.milliseconds(timing.p50.value) if timing else words.ABSENT,
        "faster": words.times(faster.value) if faster else words.ABSENT,
        "size": words.size(row.footprint.bytes_total if row.footprint else None),
        "cost": words.seconds(row.cost_seconds),
        "gate": "winner" if is_winner else standing(report, row, place),
    }


def _floor_row(floor: Quality, metric: str, columns: tuple[str, ...]) -> Cells:
    return {
        **dict.fromkeys(columns, words.ABSENT),
        "model": "bag of words",
        "variant": "linear",
        metric: scored(floor),
        "vs teacher": difference(floor),
        "gate": "floor",
    }


def standing(report: Report, row: LedgerRow, place: AtTarget | None) -> str:
    """What became of a row, in a few words."""
    if row.status != "ok":
        return row.status
    if place is not None and not place.latency.timed:
        return place.latency.status
    if row.key == report.teacher:
        return "reference"
    if place is None or place.gate is None:
        return "baseline"
    shaky = ", unstable" if place.latency.status == "unstable" else ""
    return ("passed" if place.gate.passed else "missed") + shaky


def scored(quality: Quality | None) -> str:
    """The primary score with its interval: `90.4 (88.3 to 92.3)`."""
    if quality is None:
        return words.ABSENT
    larger = quality.larger_is_better
    return f"{words.score(quality.primary.value, larger)} ({words.interval(quality.primary, larger)})"


def difference(quality: Quality | None) -> str:
    """The difference to the teacher: `−0.3`, marked where it is larger than chance explains at 5 %."""
    found = quality.versus_teacher if quality else None
    if quality is None or found is None:
        return words.ABSENT
    return words.signed(found.value, quality.larger_is_better) + ("*" if found.p_value < 0.05 else "")


def verdict_of(report: Report, title: str) -> Verdict | None:
    """The verdict at one target, once it is judged."""
    return next((verdict for verdict in report.verdicts if verdict.target == title), None)


def stages(report: Report, title: str, key: str) -> Table:
    """What each stage on the way to ``key`` cost and gained at a target."""
    columns = ("stage", "row", "faster", "95 %", "smaller", report.task.metric, "took")
    larger, links = _larger(report), chain(report, key, title)
    rows = tuple(
        {
            "stage": link.stage,
            "row": link.after.key,
            "faster": words.times(link.speedup.value if link.speedup else None),
            "95 %": f"{words.times(link.speedup.low)} to {words.times(link.speedup.high)}"
            if link.speedup
            else words.ABSENT,
            "smaller": words.times(link.smaller),
            report.task.metric: words.signed(link.gained, larger),
            "took": words.seconds(link.seconds),
        }
        for link in links
    )
    start = {**dict.fromkeys(columns, words.ABSENT), "stage": "as it runs today", "row": report.teacher}
    return Table(columns, (start, *rows) if rows else (), frozenset(columns[2:]))


def comparisons(report: Report, verdict: Verdict) -> Table:
    """The winner beside every baseline."""
    columns = ("against", "row", "faster", "95 %", "smaller", "score kept")
    rows = tuple(
        {
            "against": found.against,
            "row": found.key,
            "faster": words.times(found.speedup.value if found.speedup else None),
            "95 %": f"{words.times(found.speedup.low)} to {words.times(found.speedup.high)}"
            if found.speedup
            else words.ABSENT,
            "smaller": words.times(found.smaller),
            "score kept": words.percent(found.kept),
        }
        for found in verdict.comparisons
    )
    return Table(columns, rows, frozenset(columns[2:]))


def timings(report: Report, title: str) -> Table:
    """Everything that was timed at a target."""
    quantiles = ("p50", "p95", "p99")
    ends = ("end to end p50", "end to end p95")
    columns = ("model", "variant", *quantiles, "spread", *ends, "rows/s", "load", "memory", "runs with")
    rows = []
    for row in report.rows:
        place = row.targets.get(title)
        if place is not None:
            rows.append({"model": row.model, "variant": row.variant.name, **_timing_cells(place.latency)})
    return Table(columns, tuple(rows), frozenset(columns[2:-1]))


def _timing_cells(latency: Latency) -> dict[str, str]:
    model, full = latency.model, latency.end_to_end
    told = " ".join(str(latency.runs_with[name]) for name in ("runtime", "version") if name in latency.runs_with)
    return {
        "p50": _quantile(model, "p50"),
        "p95": _quantile(model, "p95"),
        "p99": _quantile(model, "p99"),
        "spread": words.percent(model.spread) if model else words.ABSENT,
        "end to end p50": _quantile(full, "p50"),
        "end to end p95": _quantile(full, "p95"),
        "rows/s": words.count(latency.rows_per_second),
        "load": words.seconds(latency.load_seconds),
        "memory": words.size(latency.peak_memory),
        "runs with": told or latency.reason or words.ABSENT,
    }


def _quantile(timing: Timing | None, name: str) -> str:
    found = {"p50": timing.p50, "p95": timing.p95, "p99": timing.p99}[name] if timing else None
    return words.milliseconds(found.value if found else None)


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
                    "lost on select": words.points(place.gate.drop, larger),
                    "allowed": words.points(place.gate.allowed, larger),
                    "passed": "yes" if place.gate.passed else "no",
                    "why not": "; ".join(place.gate.reasons) or words.ABSENT,
                }
            )
    return Table(columns, tuple(rows), frozenset({"lost on select", "allowed"}))


def classes(report: Report, title: str, key: str) -> Table:
    """The recall of every class on test, of the teacher and of ``key``."""
    ours, teachers = (_test(report, name, title) for name in (key, report.teacher))
    columns = ("class", "rows", "teacher", "winner", "change")
    if ours is None or teachers is None:
        return Table(columns, ())
    rows = tuple(
        {
            "class": label,
            "rows": words.count(entry.rows),
            "teacher": words.score(teachers.per_class[label].recall),
            "winner": words.score(entry.recall),
            "change": words.signed(entry.recall - teachers.per_class[label].recall),
        }
        for label, entry in ours.per_class.items()
        if label in teachers.per_class
    )
    return Table(columns, rows, frozenset(columns[1:]))


def _test(report: Report, key: str, title: str) -> Quality | None:
    row = report.row(key)
    place = row.targets.get(title) if row else None
    return place.test if place else None


def costs(report: Report) -> Table:
    """The steps of the run and what they took."""
    rows = tuple(
        {"step": step.name, "took": words.seconds(step.seconds), "state": _state(step)} for step in report.steps
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
