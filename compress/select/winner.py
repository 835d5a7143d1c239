"""The winner on a target: of the candidates that pass the gate within the budget the fastest, smallest or best.

The budget is what a winner may take and weigh; it rules rows out whatever they score.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from compress import format_numbers as fmt
from compress.errors import group_by_reason
from compress.measure.result_base import Score
from compress.measure.timing.latency import TimedPart, ratio
from compress.runtimes import EVERYWHERE
from compress.select.gate import MANY, format_change, format_more_rows, gate
from compress.select.ledger import GateResult, HeldBack, Limits, Rules, TargetResult, Trade, Verdict

BEST = {"size": "the smallest", "score": "the best on select"}
"""What the first in rank is called, where rows are ranked by no time."""
LEVEL, SMALLER = 1.1, 0.95
"""Rows as fast as the first take at most this much longer, whatever their interval leaves open; and one of them wins
instead where it has at most this share of its bytes."""
TIMED_PARTS: Mapping[str, TimedPart] = {"p50": "model", "end_to_end": "end_to_end"}
"""What is timed of rows that are ranked by the ratio of their times."""
SHARED_REASONS = 2
"""Reasons for which rows are ruled out that are listed with all their rows."""


def select_winner(
    target: str, candidates: Sequence[TargetResult], rules: Rules, missing: str | None = None
) -> tuple[Verdict, dict[str, GateResult]]:
    """Choose the winner on a target; return it with the gate's result of every candidate, by row key.

    Args:
        target: the target's title.
        candidates: the rows that run there, the reference among them.
        rules: the allowed loss, and what to rank by.
        missing: why the target is not on this machine.
    """
    reference = next((row for row in candidates if row.reference), None)
    classes = reference.select.per_class if reference and reference.select else {}
    compared = len({row.select.versus_teacher for row in candidates if row.select and not row.reference})
    gates = {
        row.key: gate(rules, row.select, classes, quantized=row.quantized, compared=compared).model_copy(
            update={"ruled_out": _ruled_out(target, row, rules, reference)}
        )
        for row in candidates
        if not row.reference
    }
    eligible = [row for row in candidates if row.key in gates and gates[row.key].may_win]
    eligible = [row for row in eligible if gates[row.key].outcome == "passed"] or eligible
    timed = [row for row in eligible if row.latency.timed and _rank(row, rules) is not None]
    if missing is not None:
        return Verdict(target=target, winner=None, why=f"not measured: {missing}"), gates
    if not timed:
        ranked = sorted((row for row in candidates if row.key in gates), key=partial(_order, rules=rules))
        far = {row.key: _excess(rules.budget, target, row, reference) for row in ranked}
        why = _why_none(eligible, {row.key: gates[row.key] for row in ranked}, rules, far)
        return Verdict(target=target, winner=None, why=why), gates
    first, winner = _best(timed, rules)
    everywhere = [row for row in timed if row.runs_everywhere]
    why = _why(winner, first, len(timed), gates[winner.key], rules)
    if compared > MANY:
        why += f"; the gate is corrected for {compared} variants"
    near = [row for row in candidates if row.key in gates and _is_trade(row, gates[row.key], winner, rules)]
    nearest = min(near, key=partial(_order, rules=rules), default=None)
    trade = nearest and _trade(nearest, gates[nearest.key], winner, reference, rules)
    verdict = Verdict(
        target=target,
        winner=winner.key,
        why=why,
        trade=trade,
        held_back=tuple(_held_back(candidates, gates, winner, rules)),
        everywhere=_everywhere(target, everywhere, winner, rules),
    )
    return verdict, gates


def _everywhere(target: str, rows: Sequence[TargetResult], winner: TargetResult, rules: Rules) -> Verdict | None:
    """Return the best of the rows that run everywhere; None where that is the winner."""
    best = _best(rows, rules)[1] if rows else winner
    why = f"the best that passed and runs in {' and '.join(EVERYWHERE)}"
    return Verdict(target=target, winner=best.key, why=why) if best is not winner else None


def _ruled_out(target: str, row: TargetResult, rules: Rules, reference: TargetResult | None) -> tuple[str, ...]:
    """Return why a row cannot win whatever it lost: where it does not run, and what it exceeds of the budget."""
    elsewhere = (row.ruled_out,) if row.ruled_out else ()
    return (*elsewhere, *(each.text for each in over_budget(rules.budget, target, row, reference)))


def _excess(budgets: Sequence[Limits], target: str, row: TargetResult, reference: TargetResult | None) -> float:
    """Return how many times a row exceeds the limit that it misses most: 1 where none, infinity where it cannot run."""
    if row.ruled_out:
        return math.inf
    return max((each.times for each in over_budget(budgets, target, row, reference)), default=1.0)


def _best(timed: Sequence[TargetResult], rules: Rules) -> tuple[TargetResult, TargetResult]:
    """Return the first row, and the smallest of those that are as fast."""
    first = min(timed, key=partial(_order, rules=rules))
    most = math.inf if first.bytes_total is None else SMALLER * first.bytes_total
    equals = [row for row in timed if (row.bytes_total or math.inf) <= most and _is_level(row, first, rules)]
    return first, min(equals, key=lambda row: (row.bytes_total or math.inf, row.key), default=first)


def _rank(row: TargetResult, rules: Rules) -> float | None:
    """Return what rows are ranked by, the least first: milliseconds, bytes or errors; None where it is not known."""
    if rules.rank_by == "size":
        return row.bytes_total
    if rules.rank_by == "score":
        if row.select is None:
            return None
        return row.select.primary.value * (-1.0 if row.select.larger_is_better else 1.0)
    quantile = _quantile(row, rules)
    return quantile.value if quantile else None


def _quantile(row: TargetResult, rules: Rules) -> Score | None:
    """Return the time that rows are ranked by, where it is one."""
    if rules.rank_by == "size" or rules.rank_by == "score":
        return None
    if rules.rank_by == "end_to_end":
        return row.latency.typical("end_to_end")
    return row.latency.typical() if rules.rank_by == "p50" else row.latency.quantile(rules.rank_by)


def _order(row: TargetResult, rules: Rules) -> tuple[float, float]:
    """Return the sort key of a row: its rank, then its time."""
    rank, time = _rank(row, rules), row.latency.typical()
    return math.inf if rank is None else rank, time.value if time else math.inf


def _is_level(row: TargetResult, first: TargetResult, rules: Rules) -> bool:
    """Whether the interval leaves open which is faster: of the ratio for p50, of the quantiles themselves else.

    An unstable timing has so wide an interval that it would be level with anything: so it must be nearly as fast too.
    """
    if rules.rank_by in ("size", "score"):
        return False
    if part := TIMED_PARTS.get(rules.rank_by):
        factor = ratio(row.latency, first.latency, part)
        return factor is not None and factor.low <= 1.0 and factor.value <= LEVEL
    ours, theirs = _quantile(row, rules), _quantile(first, rules)
    return ours is not None and theirs is not None and ours.low <= theirs.high and ours.value <= LEVEL * theirs.value


def _is_ahead(row: TargetResult, winner: TargetResult, rules: Rules) -> bool:
    ours, theirs = _rank(row, rules), _rank(winner, rules)
    return ours is not None and theirs is not None and ours < theirs


def _held_back(
    candidates: Sequence[TargetResult], gates: Mapping[str, GateResult], winner: TargetResult, rules: Rules
) -> Iterator[HeldBack]:
    """Yield the rows that are ahead of the winner and did not pass, or are ruled out, and why."""
    for row in sorted(candidates, key=partial(_order, rules=rules)):
        result = gates.get(row.key)
        if result and result.state != "passed" and _is_ahead(row, winner, rules):
            yield HeldBack(key=row.key, text=f"{_shown_rank(row, rules)}, {result.state}: {result.why}")


def _shown_rank(row: TargetResult, rules: Rules) -> str:
    rank = _rank(row, rules) or 0.0
    if rules.rank_by == "score":
        return f"{abs(rank):.4g} on select"
    return f"{rank / MEGABYTE:.3g} MB" if rules.rank_by == "size" else f"{rank:.3g} ms"


def _is_trade(row: TargetResult, result: GateResult, winner: TargetResult, rules: Rules) -> bool:
    """Whether a row did not pass, is clearly faster than the winner, and loses little more than what is allowed."""
    if result.outcome == "passed" or result.ruled_out or row is winner:
        return False
    near = result.outcome == "undecided" or (result.excess is not None and result.excess <= result.allowed)
    return near and _is_ahead(row, winner, rules) and not _is_level(winner, row, rules)


def _trade(
    row: TargetResult, result: GateResult, winner: TargetResult, reference: TargetResult | None, rules: Rules
) -> Trade:
    """Describe a row outside the gate: `22.0× faster than the teacher (the winner: 4.8×) for 0.1 points more …`."""
    part = TIMED_PARTS.get(rules.rank_by)
    factors = [part and reference and ratio(reference.latency, one.latency, part) for one in (row, winner)]
    speeds = [f"{factor.value:.1f}×" for factor in factors if factor]
    text = f"just outside the gate is {row.key}, "
    if len(speeds) == 2:
        text += f"{speeds[0]} faster than the teacher (the winner: {speeds[1]})"
    else:
        text += f"{_shown_rank(row, rules)} (the winner: {_shown_rank(winner, rules)})"
    larger = row.select.larger_is_better if row.select else True
    if result.excess and result.excess > 0:
        text += f" for {fmt.points(result.excess, larger)} more than allowed"
    elif result.outcome == "undecided":
        text += f", which {_loss(result.drop, larger)}"
    else:  # strict: its interval is not within what is allowed
        text += f": it {'; '.join(result.reasons)}"
    if result.outcome == "undecided":
        text += f" (undecided: {format_more_rows(result.more_rows)})"
    return Trade(key=row.key, text=text)


def _why(winner: TargetResult, first: TargetResult, timed: int, result: GateResult, rules: Rules) -> str:
    passed, within = result.outcome == "passed", " within the budget" if rules.budget else ""
    among = f"of {timed} {'that passed the gate' if passed else 'undecided ones'}{within}"
    if timed == 1:
        among = f"and the only {'one that passed the gate' if passed else 'undecided one'}{within}"
    best = BEST.get(rules.rank_by, "the fastest")
    won = f"{best} {among}" if first is winner else f"as fast as {first.key} and the smaller, {among}"
    larger = winner.select.larger_is_better if winner.select else True
    more = "" if passed else f"; {format_more_rows(result.more_rows)}"
    return f"{won} ({_loss(result.drop, larger)}, {fmt.points(result.allowed, larger)} allowed{more})"


def _loss(drop: float | None, larger: bool) -> str:
    return "loss unknown" if drop is None else f"{format_change(drop, larger)} on select"


def _why_none(
    eligible: Sequence[TargetResult], gates: Mapping[str, GateResult], rules: Rules, far: Mapping[str, float]
) -> str:
    if eligible:
        rows = group_by_reason(
            (row.key, row.latency.reason or f"too few calls for {rules.rank_by.replace('_', ' ')}") for row in eligible
        )
        why = next(iter(rows)) if len(rows) == 1 else "; ".join(f"{keys}: {reason}" for reason, keys in rows.items())
        passed = "passed the gate" if gates[eligible[0].key].outcome == "passed" else "the gate left undecided"
        return f"no variant that {passed} could be timed: {why}"
    if not gates:
        return "nothing that may win was measured here"
    if barred := {key: "; ".join(result.ruled_out) for key, result in gates.items() if result.ruled_out}:
        others = {key: result for key, result in gates.items() if not result.ruled_out}
        excluded = _excluded(barred, gates, far)
        return (
            f"{_why_none([], others, rules, far)}; {excluded}" if others else f"every variant is ruled out: {excluded}"
        )
    known = {key: result for key, result in gates.items() if result.drop is not None} or gates
    key = min(known, key=lambda one: float("inf") if (drop := known[one].drop) is None else drop)
    return f"no variant passed the gate; the nearest, {key}, {'; '.join(known[key].reasons)}"


def _excluded(barred: Mapping[str, str], gates: Mapping[str, GateResult], far: Mapping[str, float]) -> str:
    """Return what is ruled out and why: every row where they share reasons, else the one that is nearest to winning.

    That is the one that misses the fewest limits, of which the gate is one; of equals the one that exceeds them least,
    then the first in rank. ``gates``: the first in rank first; ``far``: how many times each exceeds a limit.
    """
    rows = group_by_reason(barred.items())
    if len(rows) <= SHARED_REASONS:
        return "; ".join(f"{keys}: {reason}" for reason, keys in rows.items())
    near = {one: (_missed(gates[one]), far[one]) for one in gates if one in barred}
    key = min(near, key=lambda one: near[one])
    outcome = "" if gates[key].outcome == "passed" else f"; its loss: {gates[key].outcome}"
    return f"the nearest, {key}, {barred[key]}{outcome}"


def _missed(result: GateResult) -> int:
    """Return how many limits a row misses."""
    return len(result.ruled_out) + (result.outcome == "missed")


class Exceeded(NamedTuple):
    """A limit of a budget that a row does not keep."""

    text: str
    times: float
    """How many times it exceeds it; infinity where that is not known."""


MEGABYTE = 1e6


def over_budget(
    budgets: Sequence[Limits], target: str, row: TargetResult, reference: TargetResult | None
) -> Iterator[Exceeded]:
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
            yield from _large("size", budget.size, row.bytes_total)
            yield from _large("memory", budget.memory, row.peak_memory)
            yield from _small_factors(budget, row, reference)


def _slow(budget: Limits, row: TargetResult) -> Iterator[Exceeded]:
    limits = {
        "mean" if row.latency.by_mean else "p50": (budget.p50, row.latency.typical()),
        "p95": (budget.p95, row.latency.quantile("p95")),
        "end to end": (budget.end_to_end, row.latency.typical("end_to_end")),
    }
    for name, (limit, taken) in limits.items():
        if limit is not None and taken is None:
            unknown = f"its {name} is not known ({row.latency.reason or 'too few calls'}), {limit:g} ms allowed"
            yield Exceeded(unknown, math.inf)
        elif limit is not None and taken is not None and taken.value > limit:
            text = f"takes {taken.value:.3g} ms ({name}), {limit:g} ms allowed"
            yield Exceeded(text, taken.value / limit)


def _large(name: str, limit: int | None, taken: int | None) -> Iterator[Exceeded]:
    if limit is None:
        return
    allowed = f"{limit / MEGABYTE:g} MB allowed"
    if taken is None:
        yield Exceeded(f"its {name} is not known, {allowed}", math.inf)
    elif taken > limit:
        where = " in memory" if name == "memory" else ""
        yield Exceeded(f"has {taken / MEGABYTE:.3g} MB{where}, {allowed}", taken / limit)


def _small_factors(budget: Limits, row: TargetResult, reference: TargetResult | None) -> Iterator[Exceeded]:
    faster = ratio(reference.latency, row.latency) if reference else None
    sizes = (reference.bytes_total if reference else None), row.bytes_total
    smaller = sizes[0] / sizes[1] if sizes[0] and sizes[1] else None
    factors = {
        "faster": (faster.value if faster else None, budget.speedup),
        "smaller": (smaller, budget.smaller),
    }
    for word, (factor, asked) in factors.items():
        if asked is not None and factor is None:
            yield Exceeded(f"how many times {word} than the teacher it is is not known, {asked:g} asked for", math.inf)
        elif asked is not None and factor is not None and factor < asked:
            yield Exceeded(f"is {factor:.3g} times {word} than the teacher, {asked:g} asked for", asked / factor)
