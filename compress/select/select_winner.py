"""Who may win and who wins: pure functions of a report's facts.

The gate is judged on select, so that test stays unseen until the end. A candidate may lose ``max_drop`` against the
teacher, a quantized one also ``quantize.max_drop`` against its own unquantized model. The point estimate decides, or
the end of the interval under ``strict``. The reference (the teacher as it runs today) is no candidate: where nothing
else passes, nothing is won.
"""

from __future__ import annotations

from collections.abc import Mapping

from compress.measure.quality.quality_result import ClassScore, Difference, Quality
from compress.measure.result_base import Score
from compress.measure.timing.latency import Latency, Timing, ratio
from compress.report.format_numbers import format_points
from compress.report.report_schema import (
    Comparison,
    GateResult,
    LedgerRow,
    Report,
    Rules,
    TargetFacts,
    TargetResult,
    Verdict,
)
from compress.report.report_warnings import report_warnings
from compress.report.retention import quality_on_test, ratio_above_baseline, score_ratio
from compress.report.speedup_breakdown import fastest_variant, speedup
from compress.report.tables.speed_tables import group_by_reason

ROUNDING = 1e-9
"""0.91 - 0.90 is 0.01 and a little in floating point; that little does not fail the gate."""
CLASS_ROWS = 50
"""Rows from which a class's recall is steady enough to gate."""


def judged(report: Report) -> Report:
    """The report with every gate result, the verdict of every target and the remarks filled in."""
    gated = report.model_copy(update={"rows": tuple(_gated(row, report) for row in report.rows)})
    verdicts = tuple(decide(gated, target) for target in gated.targets)
    decided = gated.model_copy(update={"verdicts": verdicts})
    return decided.model_copy(update={"remarks": (*report.remarks, *report_warnings(decided))})


def gate(
    rules: Rules, select: Quality | None, teacher_classes: Mapping[str, ClassScore], *, quantized: bool
) -> GateResult:
    """Whether these answers on select pass."""
    if select is None:
        return GateResult(passed=False, drop=None, allowed=rules.max_drop, reasons=("it was not scored on select",))
    drop, reasons = _lost("the teacher", select.versus_teacher, rules.max_drop, rules.strict, select)
    if quantized and rules.quantize_max_drop is not None:
        unquantized = "its own unquantized model"
        reasons += _lost(unquantized, select.versus_unquantized, rules.quantize_max_drop, rules.strict, select)[1]
    if rules.max_class_drop is not None:
        reasons += _lost_classes(select.per_class, teacher_classes, rules.max_class_drop)
    return GateResult(passed=not reasons, drop=drop, allowed=rules.max_drop, reasons=tuple(reasons))


def decide(report: Report, target: TargetFacts) -> Verdict:
    """The fastest row that passes at ``target``; of those that are as fast within the interval, the smallest."""
    if not target.present:
        return Verdict(target=target.title, winner=None, why=f"not measured: {target.reason}")
    passing = passing_at(report, target.title)
    timed = [row for row in passing if ranked_by(row.targets[target.title].latency, report.rules) is not None]
    if not timed:
        return Verdict(target=target.title, winner=None, why=_why_none(report, target.title, passing))
    winner = _smallest_of_fastest(timed, target.title, report.rules)
    return Verdict(
        target=target.title,
        winner=winner.key,
        why=_why(winner, timed, target.title, report),
        comparisons=_comparisons(report, winner, target.title),
    )


def passing_at(report: Report, title: str) -> list[LedgerRow]:
    """The rows that passed the gate at a target, timed or not."""
    return [row for row in report.rows if _passes(row, title)]


def ranked_by(latency: Latency, rules: Rules) -> Score | None:
    """The quantile by which the recipe ranks; None where there are too few calls for it."""
    return quantile(latency.model, rules.rank_by) if latency.model else None


def quantile(timing: Timing, name: str) -> Score | None:
    """One quantile of a timing by its name."""
    return {"p50": timing.p50, "p95": timing.p95, "p99": timing.p99}[name]


def _gated(row: LedgerRow, report: Report) -> LedgerRow:
    if row.key == report.teacher:
        return row
    places = {}
    for title, place in row.targets.items():
        result = gate(
            report.rules,
            place.select,
            _teacher_classes(report, title),
            quantized=row.key in report.unquantized,
        )
        places[title] = place.model_copy(update={"gate": result})
    return row.model_copy(update={"targets": places})


def _teacher_classes(report: Report, title: str) -> Mapping[str, ClassScore]:
    teacher = report.row(report.teacher)
    place = teacher.targets.get(title) if teacher else None
    return place.select.per_class if place and place.select else {}


def _lost(
    whom: str, difference: Difference | None, allowed: float, strict: bool, select: Quality
) -> tuple[float | None, list[str]]:
    """The drop, and a reason where it is more than allowed."""
    if difference is None:
        return None, [f"it was not compared with {whom}"]
    drop = -difference.value
    judged_by = -difference.low if strict else drop
    if judged_by <= allowed + ROUNDING:
        return drop, []
    amount = format_points(judged_by, select.larger_is_better)
    measured = f"may have lost {amount} (95 % interval)" if strict else f"lost {amount}"
    return drop, [f"{measured} against {whom}, {format_points(allowed, select.larger_is_better)} allowed"]


def _lost_classes(ours: Mapping[str, ClassScore], teachers: Mapping[str, ClassScore], allowed: float) -> list[str]:
    return [
        f"lost {format_points(teacher.recall - ours[label].recall)} of recall on '{label}',"
        f" {format_points(allowed)} allowed"
        for label, teacher in teachers.items()
        if teacher.rows >= CLASS_ROWS and label in ours and teacher.recall - ours[label].recall > allowed + ROUNDING
    ]


def _passes(row: LedgerRow, title: str) -> bool:
    place = row.targets.get(title)
    return place is not None and place.gate is not None and place.gate.passed


def _smallest_of_fastest(rows: list[LedgerRow], title: str, rules: Rules) -> LedgerRow:
    fastest = min(rows, key=lambda row: _speed(row, title, rules).value)
    equals = [row for row in rows if row is fastest or _as_fast(row, fastest, title, rules)]
    return min(equals, key=lambda row: (row.footprint.bytes_total if row.footprint else float("inf"), row.key))


def _speed(row: LedgerRow, title: str, rules: Rules) -> Score:
    score = ranked_by(row.targets[title].latency, rules)
    assert score is not None
    return score


def _as_fast(row: LedgerRow, fastest: LedgerRow, title: str, rules: Rules) -> bool:
    """Whether the interval leaves it open which is faster: of the ratio for p50, of the quantiles themselves else."""
    if rules.rank_by == "p50":
        factor = ratio(row.targets[title].latency, fastest.targets[title].latency)
        return factor is not None and factor.low <= 1.0
    return _speed(row, title, rules).low <= _speed(fastest, title, rules).high


def _why(winner: LedgerRow, timed: list[LedgerRow], title: str, report: Report) -> str:
    place = winner.targets[title]
    assert place.gate is not None
    fastest = min(timed, key=lambda row: _speed(row, title, report.rules).value)
    among = f"of {len(timed)} that passed the gate" if len(timed) > 1 else "and the only one that passed the gate"
    won = f"the fastest {among}" if fastest is winner else f"as fast as {fastest.key} and the smaller, {among}"
    return f"{won} ({_loss(place)}, {format_points(place.gate.allowed, _larger(place))} allowed)"


def _loss(place: TargetResult) -> str:
    drop = place.gate.drop if place.gate else None
    if drop is None:
        return "loss unknown"
    word = "lost" if drop > 0 else "gained"
    return f"{word} {format_points(abs(drop), _larger(place))} on select" if drop else "lost nothing on select"


def _larger(place: TargetResult) -> bool:
    return place.select.larger_is_better if place.select else True


def _why_none(report: Report, title: str, passing: list[LedgerRow]) -> str:
    if passing:
        reasons = {
            row.key: row.targets[title].latency.reason or f"too few calls for {report.rules.rank_by}" for row in passing
        }
        return f"no variant that passed the gate could be timed: {_common(reasons)}"
    missed = [(row, place.gate) for row in report.rows if (place := row.targets.get(title)) and place.gate]
    if not missed:
        return "nothing that may win was measured here"
    known = [entry for entry in missed if entry[1].drop is not None] or missed
    nearest, result = min(known, key=lambda entry: entry[1].drop if entry[1].drop is not None else float("inf"))
    return f"no variant passed the gate; the nearest, {nearest.key}, {'; '.join(result.reasons)}"


def _common(reasons: Mapping[str, str]) -> str:
    """Every reason once, with the rows it is given for where there are several."""
    if len(set(reasons.values())) == 1 and len(reasons) > 1:
        return next(iter(reasons.values()))
    return "; ".join(f"{', '.join(keys)}: {reason}" for reason, keys in group_by_reason(reasons.items()).items())


def _comparisons(report: Report, winner: LedgerRow, title: str) -> tuple[Comparison, ...]:
    """The winner beside the teacher as it runs today, and beside the best variant of every model of the run."""
    beside = [("the teacher as it runs today", report.row(report.teacher))]
    models = dict.fromkeys(row.model for row in report.rows)
    beside += [(f"the best variant of {model}", fastest_variant(report, model, title)) for model in models]
    seen: set[str] = {winner.key}
    found = []
    for against, row in beside:
        if row is not None and row.key not in seen:
            seen.add(row.key)
            found.append(_comparison(report, against, winner, row, title))
    return tuple(found)


def _comparison(report: Report, against: str, winner: LedgerRow, other: LedgerRow, title: str) -> Comparison:
    ours, theirs = winner.footprint, other.footprint
    scores = quality_on_test(report, winner.key, title), quality_on_test(report, other.key, title)
    return Comparison(
        against=against,
        key=other.key,
        speedup=speedup(other, winner, title),
        smaller=theirs.bytes_total / ours.bytes_total if ours and theirs else None,
        kept=score_ratio(*scores),
        kept_above_floor=ratio_above_baseline(report, *scores, title),
    )
