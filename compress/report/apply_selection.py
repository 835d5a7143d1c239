"""Write gate results and winners into a report, and compare each winner with other rows."""

from __future__ import annotations

from compress.report.report_schema import Comparison, LedgerRow, Report, TargetResult, Verdict
from compress.report.report_warnings import report_warnings
from compress.report.retention import quality_on_test, ratio_above_baseline, score_ratio
from compress.report.speedup_breakdown import fastest_variant, speedup
from compress.select.selection import Selection, TargetSelection


def apply_selection(report: Report, selection: Selection) -> Report:
    """Return the report with gate results, the verdict of every target, and warnings."""
    gated = report.model_copy(update={"rows": tuple(_gated(row, selection) for row in report.rows)})
    verdicts = tuple(_verdict(gated, result) for result in selection.targets)
    decided = gated.model_copy(update={"verdicts": verdicts})
    return decided.model_copy(update={"remarks": (*report.remarks, *report_warnings(decided))})


def _gated(row: LedgerRow, selection: Selection) -> LedgerRow:
    gates = {one.target: one.gates.get(row.key) for one in selection.targets}

    def gated(title: str, result: TargetResult) -> TargetResult:
        return result.model_copy(update={"gate": gates.get(title)})

    return row.model_copy(update={"targets": {title: gated(title, result) for title, result in row.targets.items()}})


def _verdict(report: Report, result: TargetSelection) -> Verdict:
    winner = report.row(result.winner) if result.winner else None
    comparisons = _comparisons(report, winner, result.target) if winner else ()
    return Verdict(target=result.target, winner=result.winner, why=result.why, comparisons=comparisons)


def _comparisons(report: Report, winner: LedgerRow, title: str) -> tuple[Comparison, ...]:
    """Compare the winner with the teacher in PyTorch, and with the best variant of every model of the run."""
    others = [("the teacher in PyTorch", report.row(report.teacher))]
    models = dict.fromkeys(row.model for row in report.rows)
    others += [(f"the best variant of {model}", fastest_variant(report, model, title)) for model in models]
    seen: set[str] = {winner.key}
    comparisons = []
    for against, row in others:
        if row is not None and row.key not in seen:
            seen.add(row.key)
            comparisons.append(_comparison(report, against, winner, row, title))
    return tuple(comparisons)


def _comparison(report: Report, against: str, winner: LedgerRow, other: LedgerRow, title: str) -> Comparison:
    sizes = winner.footprint, other.footprint
    scores = quality_on_test(report, winner.key, title), quality_on_test(report, other.key, title)
    return Comparison(
        against=against,
        key=other.key,
        speedup=speedup(other, winner, title),
        smaller=sizes[1].bytes_total / sizes[0].bytes_total if sizes[0] and sizes[1] else None,
        kept=score_ratio(*scores),
        kept_above_floor=ratio_above_baseline(report, *scores, title),
    )
