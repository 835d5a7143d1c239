"""A budget: what a winner may take and weigh; it rules rows out whatever they score."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from compress.measure.timing.latency import ratio
from compress.select.ledger import Limits, TargetResult

MEGABYTE = 1e6


def over_budget(
    budgets: Sequence[Limits], target: str, row: TargetResult, reference: TargetResult | None
) -> Iterator[str]:
    """Yield what a row exceeds of the budgets that hold on a target.

    Args:
        budgets: of the recipe.
        target: the target's title.
        row: timed there, or not: then it keeps no limit of time.
        reference: the teacher in PyTorch, which factors compare with.
    """
    for budget in budgets:
        if budget.target in (None, target):
            yield from _slow(budget, row)
            yield from _large(budget, row)
            yield from _small_factors(budget, row, reference)


def _slow(budget: Limits, row: TargetResult) -> Iterator[str]:
    limits = {"p50": budget.p50, "p95": budget.p95}
    for name, limit in limits.items():
        taken = row.latency.quantile("p50" if name == "p50" else "p95")
        if limit is not None and taken is None:
            yield f"its {name} is not known ({row.latency.reason or 'too few calls'}), {limit:g} ms allowed"
        elif limit is not None and taken is not None and taken.value > limit:
            yield f"takes {taken.value:.3g} ms ({name}), {limit:g} ms allowed"


def _large(budget: Limits, row: TargetResult) -> Iterator[str]:
    if budget.size is None:
        return
    allowed = f"{budget.size / MEGABYTE:g} MB allowed"
    if row.bytes_total is None:
        yield f"its size is not known, {allowed}"
    elif row.bytes_total > budget.size:
        yield f"has {row.bytes_total / MEGABYTE:.3g} MB, {allowed}"


def _small_factors(budget: Limits, row: TargetResult, reference: TargetResult | None) -> Iterator[str]:
    faster = ratio(reference.latency, row.latency) if reference else None
    sizes = (reference.bytes_total if reference else None), row.bytes_total
    smaller = sizes[0] / sizes[1] if sizes[0] and sizes[1] else None
    factors = {
        "faster": (faster.value if faster else None, budget.speedup),
        "smaller": (smaller, budget.smaller),
    }
    for word, (factor, asked) in factors.items():
        if asked is not None and factor is None:
            yield f"how many times {word} than the teacher it is is not known, {asked:g} asked for"
        elif asked is not None and factor is not None and factor < asked:
            yield f"is {factor:.3g} times {word} than the teacher, {asked:g} asked for"
