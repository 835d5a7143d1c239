"""What a million texts cost: on a target whose hour has a price, beside the service that a model replaces."""

from __future__ import annotations

from compress.report.report_schema import Report
from compress.select.ledger import TargetResult

TEXTS, SECONDS_PER_HOUR = 1_000_000, 3600.0


def shows_costs(report: Report, title: str) -> bool:
    """Return whether there are prices to compare: of the target's hour, or of the service."""
    return report.target(title).price is not None or report.service is not None


def cost_of_texts(report: Report, title: str, result: TargetResult | None) -> float | None:
    """Return the price of the time that one process needs for a million texts, tokenizing and decoding included.

    None where the target has no price, or texts were not timed from end to end.
    """
    target, latency = report.target(title), result.latency if result else None
    if target.price is None or latency is None or latency.model is None or latency.end_to_end is None:
        return None
    if latency.rows_per_second is None:
        return None
    around = (latency.end_to_end.p50.value - latency.model.p50.value) / 1e3 / target.batch
    return TEXTS * (1.0 / latency.rows_per_second + max(0.0, around)) / SECONDS_PER_HOUR * target.price
