"""The stages that lead from the teacher in PyTorch to one row of the ledger, with the cost and gain of each.

Neighbouring rows differ in one respect (runtime, model or precision) and were timed in the same rounds, so the factors
of all stages multiply to the total, up to the error of each.
"""

from dataclasses import dataclass
from itertools import pairwise

from compress.measure.result_base import Score
from compress.measure.timing.latency import TimedPart, ratio
from compress.prune.latency_table import SpeedupResult
from compress.report.report_schema import LedgerRow, Report


@dataclass(frozen=True)
class Stage:
    """What one stage changed on one target."""

    name: str
    """The step of a new model (`distill`, `prune`) or the name of a new variant (`onnx-fp32`, `onnx-int8`)."""
    before: LedgerRow
    after: LedgerRow
    speedup: Score | None
    smaller: float | None
    """Bytes before over bytes after."""
    score_change: float | None
    """Change of the primary score on test; negative for a loss."""
    seconds: float | None
    """Time of the steps that lead to `after` and not to `before`; None where there are none."""


def speedup_stages(report: Report, key: str, title: str) -> list[Stage]:
    """Return the stages from the teacher's row to ``key``, following the parents of its model.

    The models are compared in the unquantized variant of ``key``; rows that do not exist or failed are skipped.
    """
    start, end = report.row(report.teacher), report.row(key)
    if start is None or end is None:
        return []
    plain = report.row(report.unquantized.get(key, key)) or end
    models = [report.row(f"{model.name}/{plain.variant.name}") for model in report.lineage(end.model)]
    rows = {row.key: row for row in (start, *models, end) if row is not None and row.status == "ok"}
    return [_stage(report, before, after, title) for before, after in pairwise(rows.values())]


def _stage(report: Report, before: LedgerRow, after: LedgerRow, title: str) -> Stage:
    return Stage(
        name=after.step if after.model != before.model else after.variant.name,
        before=before,
        after=after,
        speedup=speedup(report, before, after, title),
        smaller=times_smaller(before, after),
        score_change=_score_change(report, before, after, title),
        seconds=_seconds(report, before, after),
    )


def _seconds(report: Report, before: LedgerRow, after: LedgerRow) -> float | None:
    if not after.steps:  # an older report, whose costs tell the difference unless a step before it took longer
        costs = (after.cost_seconds or 0.0) - (before.cost_seconds or 0.0)
        return costs if costs > 0 else None
    own = {*after.steps} - {*before.steps}
    return sum(step.seconds or 0.0 for step in report.steps if step.name in own) if own else None


def speedup(report: Report, before: LedgerRow, after: LedgerRow, title: str, part: TimedPart = "model") -> Score | None:
    """Return how many times faster ``after`` is on a target; None if one of them was not timed."""
    slower, faster = report.result(before.key, title), report.result(after.key, title)
    return ratio(slower.latency, faster.latency, part) if slower and faster else None


def speedup_of_cut(report: Report, model: str, reached: SpeedupResult) -> tuple[LedgerRow, LedgerRow, Score] | None:
    """Return the rows before and after pruning in the variant of the goal, and their ratio at the cut's target.

    Where that variant does not compete, in the first of its precision that both have. None where they were not timed
    there, or where the latency table is from elsewhere.
    """
    parent = next((each.parent for each in report.models if each.name == model), None)
    wanted, title = reached.table.variant, report.pruned[model].target
    precision = wanted.split("-")[1]
    same = [row.variant.name for row in report.rows if row.model == model and row.variant.precision == precision]
    for variant in (wanted, *same):
        before, after = (report.row(f"{name}/{variant}") for name in (parent, model))
        factor = speedup(report, before, after, title) if before and after and title else None
        if before and after and factor:
            return before, after, factor
    return None


def times_smaller(before: LedgerRow, after: LedgerRow) -> float | None:
    """Return how many times smaller the files of ``after`` are; None if one of them is unknown."""
    return before.bytes_total / after.bytes_total if before.bytes_total and after.bytes_total else None


def _score_change(report: Report, before: LedgerRow, after: LedgerRow, title: str) -> float | None:
    """Return the change of the primary score on test, negated for errors."""
    first, last = (result.test if (result := report.result(row.key, title)) else None for row in (before, after))
    if first is None or last is None:
        return None
    return (1.0 if last.larger_is_better else -1.0) * (last.primary.value - first.primary.value)


def fastest_variant(report: Report, model: str, title: str) -> LedgerRow | None:
    """Return the fastest timed variant of a model on a target: of those that passed, else of those in the budget."""
    times = {
        row.key: score.value
        for row, result in report.rows_at(title)
        if row.model == model and (score := result.latency.typical())
    }
    passed = [row.key for row in report.with_outcome("passed", title) if row.key in times]
    within = [key for key in times if not _is_ruled_out(report, key, title)]
    return report.row(min(passed or within or times, key=times.__getitem__)) if times else None


def _is_ruled_out(report: Report, key: str, title: str) -> bool:
    result = report.result(key, title)
    return bool(result and result.gate and result.gate.ruled_out)
