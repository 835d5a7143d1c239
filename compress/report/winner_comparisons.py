"""Compares each winner of a report with other rows, on test, and says what is unusual about the results."""

from __future__ import annotations

from collections.abc import Iterator

from compress import format_numbers as fmt
from compress.errors import pluralize
from compress.report.report_schema import LedgerRow, Report
from compress.report.report_warnings import report_warnings
from compress.report.retention import SIGNIFICANCE, quality_on_test, ratio_above_baseline, score_ratio
from compress.report.speedup_breakdown import fastest_variant, speedup, times_smaller
from compress.select.gate import format_change, loss_against
from compress.select.ledger import Verdict, WinnerComparison

MOST_HELD_BACK = 5
"""Rows faster than the winner that are named one by one."""


def compare_winners(report: Report) -> Report:
    """Return the report with comparisons in the verdict of every target, and warnings."""
    decided = report.model_copy(update={"verdicts": tuple(_compared(report, verdict) for verdict in report.verdicts)})
    return decided.model_copy(update={"remarks": (*report.remarks, *report_warnings(decided))})


def verdict_by_hand(report: Report, key: str, title: str) -> Verdict:
    """Return the verdict of a target with a row that somebody chose in place of the winner."""
    chosen = report.verdict(title)
    why = f"chosen by hand in place of {chosen.winner}" if chosen and chosen.winner else "chosen by hand"
    return Verdict(target=title, winner=key, why=why, comparisons=_comparisons(report, key, title))


def held_back_lines(verdict: Verdict) -> list[str]:
    """Return a line for each row that was faster than the winner and did not pass, the fastest first.

    The one that `Verdict.reason` describes has none.
    """
    rows = [row for row in verdict.held_back if verdict.trade is None or row.key != verdict.trade.key]
    lines = [f"held back: {row.key} ({row.text})" for row in rows[:MOST_HELD_BACK]]
    if more := rows[MOST_HELD_BACK:]:
        lines.append(f"held back: {len(more)} more, with their reasons in the report (The gate, on select)")
    return lines


def _compared(report: Report, verdict: Verdict) -> Verdict:
    """Compare the winner, and the row that runs everywhere, with the teacher and the best variant of every model."""
    everywhere = verdict.everywhere
    if everywhere is not None:
        compared = _comparisons(report, everywhere.winner, everywhere.target)
        everywhere = everywhere.model_copy(update={"comparisons": compared})
    changes = {
        "comparisons": _comparisons(report, verdict.winner, verdict.target),
        "contradictions": tuple(_contradictions(report, verdict)),
        "everywhere": everywhere,
    }
    return verdict.model_copy(update=changes)


def _comparisons(report: Report, key: str | None, title: str) -> tuple[WinnerComparison, ...]:
    """Compare a row with the teacher in PyTorch, and with the best variant of every model."""
    comparisons: dict[str, WinnerComparison] = {}
    if winner := report.row(key):
        models = dict.fromkeys(row.model for row in report.rows)
        others = {"the teacher in PyTorch": report.row(report.teacher)}
        others |= {f"the best variant of {model}": fastest_variant(report, model, title) for model in models}
        for against, row in others.items():
            if row is not None and row is not winner and row.key not in comparisons:
                comparisons[row.key] = _comparison(report, against, winner, row, title)
    return tuple(comparisons.values())


def _contradictions(report: Report, result: Verdict) -> Iterator[str]:
    """Yield what the winner lost on test by more than chance, in the primary metric and in the recall of classes."""
    test = quality_on_test(report, result.winner, result.target)
    if test is None or test.versus_teacher is None:
        return
    larger = test.larger_is_better
    loss = loss_against("the teacher", test.versus_teacher, report.rules.max_drop)
    if loss.outcome(strict=False) == "missed":
        yield (
            f"on test it {format_change(loss.drop, larger)} against the teacher"
            f" (p {fmt.p_value(test.versus_teacher.p_value)}), {fmt.points(loss.allowed, larger)} allowed"
        )
    teacher = quality_on_test(report, report.teacher, result.target)
    classes = teacher.per_class if teacher else {}
    for label, ours in test.per_class.items():
        chance = SIGNIFICANCE / len(test.per_class)  # one of many classes falls by chance (Bonferroni)
        fell = classes[label].recall - ours.recall if label in classes else 0.0
        if fell > 0 and ours.recall_p_value is not None and ours.recall_p_value < chance:
            rows = f"{pluralize(ours.rows, 'row')}, p {fmt.p_value(ours.recall_p_value)}"
            yield f"recall of '{label}' fell by {fmt.points(fell)} on test ({rows})"


def _comparison(report: Report, against: str, winner: LedgerRow, other: LedgerRow, title: str) -> WinnerComparison:
    scores = quality_on_test(report, winner.key, title), quality_on_test(report, other.key, title)
    return WinnerComparison(
        against=against,
        key=other.key,
        speedup=speedup(report, other, winner, title),
        smaller=times_smaller(other, winner),
        kept=score_ratio(*scores),
        kept_above_floor=ratio_above_baseline(report, *scores, title),
    )
