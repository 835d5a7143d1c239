"""The way from the teacher as it runs today to one row of the ledger, a link for each thing that was done to it.

Neighbours in a chain differ in one thing alone (the runtime, the model or the precision) and were timed in the same
rounds. So each link tells what its one stage cost and gained, and their factors multiply to the whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from compress.measure.result_base import Score
from compress.measure.timing.latency import ratio
from compress.report.report_schema import LedgerRow, Report


@dataclass(frozen=True)
class Stage:
    """What one stage changed at one target."""

    stage: str
    """What was done: `distill`, `prune`, or the variant that was made (`onnx-fp32`, `onnx-int8`)."""
    before: LedgerRow
    after: LedgerRow
    speedup: Score | None
    smaller: float | None
    gained: float | None
    """Change of the primary score on test; below zero is a loss."""
    seconds: float | None
    """What making `after` took beyond what `before` took."""


def speedup_stages(report: Report, key: str, title: str) -> list[Stage]:
    """The links from the reference row to ``key``; rows that are not there or failed are stepped over."""
    stations = _stations(report, key)
    return [_link(before, after, title) for before, after in pairwise(stations)]


def _stations(report: Report, key: str) -> list[LedgerRow]:
    """Reference, then every model up to the last one in its unquantized variant, then the row itself."""
    end, start = report.row(key), report.row(report.teacher)
    if end is None or start is None:
        return []
    plain = report.row(report.unquantized.get(key, key)) or end
    between = [report.row(f"{model.name}/{plain.variant.name}") for model in report.lineage(end.model)]
    there = [row for row in (start, *between, end) if row is not None and row.status == "ok"]
    return list({row.key: row for row in there}.values())


def _link(before: LedgerRow, after: LedgerRow, title: str) -> Stage:
    sizes = before.footprint, after.footprint
    costs = before.cost_seconds, after.cost_seconds
    return Stage(
        stage=after.step if after.model != before.model else after.variant.name,
        before=before,
        after=after,
        speedup=speedup(before, after, title),
        smaller=sizes[0].bytes_total / sizes[1].bytes_total if sizes[0] and sizes[1] else None,
        gained=score_change(before, after, title),
        seconds=max(0.0, costs[1] - costs[0]) if costs[0] is not None and costs[1] is not None else None,
    )


def speedup(before: LedgerRow, after: LedgerRow, title: str) -> Score | None:
    """How many times faster ``after`` is at a target; None where one of them was not timed."""
    if title not in before.targets or title not in after.targets:
        return None
    return ratio(before.targets[title].latency, after.targets[title].latency)


def score_change(before: LedgerRow, after: LedgerRow, title: str) -> float | None:
    """The change of the primary score on test, turned so that below zero is a loss."""
    places = before.targets.get(title), after.targets.get(title)
    if places[0] is None or places[1] is None or places[0].test is None or places[1].test is None:
        return None
    sign = 1.0 if places[1].test.larger_is_better else -1.0
    return sign * (places[1].test.primary.value - places[0].test.primary.value)


def fastest_variant(report: Report, model: str, title: str, *, passing: bool = True) -> LedgerRow | None:
    """The fastest timed variant of a model at a target; by default among those that pass the gate, if any does."""
    timed = [
        row for row in report.rows if row.model == model and title in row.targets and row.targets[title].latency.model
    ]
    passed = [row for row in timed if (gate := row.targets[title].gate) is not None and gate.passed]
    return min((passed if passing else []) or timed, key=lambda row: _median(row, title), default=None)


def _median(row: LedgerRow, title: str) -> float:
    model = row.targets[title].latency.model
    assert model is not None
    return model.p50.value
