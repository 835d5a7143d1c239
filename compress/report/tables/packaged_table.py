"""The table of formats that were built for winners only."""

from __future__ import annotations

from collections.abc import Iterable

from compress import format_numbers as fmt
from compress.report.report_schema import Report
from compress.report.retention import larger_is_better
from compress.report.tables.quality_tables import format_change, format_quality
from compress.select.ledger import PackagedFormat
from compress.tables import Table, make_table


def packaged_table(report: Report, packaged: Iterable[PackagedFormat]) -> Table:
    """Every format with its score on test in its own runtime, its size, and the verdict of the gate on select."""
    metric, larger = f"{fmt.metric(report.task.metric)} (95 %)", larger_is_better(report)
    return make_table(
        (
            {
                "target": each.target,
                "format": each.format,
                "variant": each.variant.name if each.variant else fmt.ABSENT,
                metric: format_quality(each.test),
                "vs teacher": format_change(each.test.versus_teacher if each.test else None, larger),
                "size": fmt.size(each.footprint.bytes_total if each.footprint else None),
                "gate": each.outcome,
                "reason": _reason(each),
            }
            for each in packaged
        ),
        names=3,
        left=("gate",),
        sentences=("reason",),
    )


def _reason(packaged: PackagedFormat) -> str:
    reasons = packaged.gate.reasons if packaged.gate else ()
    left_out = () if packaged.is_delivered or packaged.variant is None else ("not delivered",)
    return "; ".join([*left_out, *reasons]) or packaged.reason or fmt.ABSENT
