"""The winner on a target: the fastest candidate that passes the gate; among equally fast ones the smallest.

Where none passes, the fastest wins that the select rows leave undecided and whose losses are as measured within what is
allowed. The reference (the teacher in PyTorch) is no candidate: where nothing else may win, nothing wins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from compress.errors import group_by_reason
from compress.measure.result_base import Score
from compress.measure.timing.latency import ratio
from compress.select.gate import MANY, format_change, format_more_rows, format_points, gate
from compress.select.selection import Candidate, GateResult, Rules, TargetSelection, Trade


def select_winner(
    target: str, candidates: Sequence[Candidate], rules: Rules, missing: str | None = None
) -> TargetSelection:
    """Apply the gate to every candidate on a target and choose the winner.

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
            update={"ruled_out": row.ruled_out}
        )
        for row in candidates
        if not row.reference
    }
    passing = [row for row in candidates if row.key in gates and gates[row.key].state == "passed"]
    eligible = passing or [row for row in candidates if row.key in gates and gates[row.key].may_win]
    timed = [row for row in eligible if row.latency.quantile(rules.rank_by) is not None]
    if missing is not None:
        return TargetSelection(target=target, winner=None, why=f"not measured: {missing}", gates=gates)
    if not timed:
        return TargetSelection(target=target, winner=None, why=_why_none(eligible, gates, rules), gates=gates)
    fastest, winner = _best(timed, rules)
    everywhere = [row for row in timed if row.runs_everywhere]
    why = _why(winner, fastest, len(timed), gates[winner.key])
    if compared > MANY:
        why += f"; the gate is corrected for {compared} variants"
    others = [row for row in candidates if row.key in gates and row.ruled_out]
    if faster := [row for row in others if _would_win(row, gates[row.key], winner, rules)]:
        row = min(faster, key=lambda row: _speed(row, rules).value)
        why += f"; {row.key} is faster and ruled out: {row.ruled_out}"
    near = [row for row in candidates if row.key in gates and _is_trade(row, gates[row.key], winner, rules)]
    nearest = min(near, key=lambda row: _speed(row, rules).value, default=None)
    trade = nearest and _trade(nearest, gates[nearest.key], winner, reference)
    return TargetSelection(
        target=target,
        winner=winner.key,
        why=why,
        gates=gates,
        trade=trade,
        everywhere=_best(everywhere, rules)[1].key if everywhere else None,
    )


def _best(timed: Sequence[Candidate], rules: Rules) -> tuple[Candidate, Candidate]:
    """Return the fastest row, and the smallest of those that are as fast."""
    fastest = min(timed, key=lambda row: _speed(row, rules).value)
    equals = [row for row in timed if row is fastest or _as_fast(row, fastest, rules)]
    return fastest, min(equals, key=lambda row: (float("inf") if row.bytes_total is None else row.bytes_total, row.key))


def _would_win(row: Candidate, result: GateResult, winner: Candidate, rules: Rules) -> bool:
    """Whether a row that is ruled out passed the gate and is faster than the winner."""
    is_timed = row.latency.quantile(rules.rank_by) is not None
    return result.outcome == "passed" and is_timed and _speed(row, rules).value < _speed(winner, rules).value


def _speed(row: Candidate, rules: Rules) -> Score:
    score = row.latency.quantile(rules.rank_by)
    assert score is not None
    return score


def _as_fast(row: Candidate, fastest: Candidate, rules: Rules) -> bool:
    """Whether the interval leaves open which is faster: of the ratio for p50, of the quantiles themselves else."""
    if rules.rank_by == "p50":
        factor = ratio(row.latency, fastest.latency)
        return factor is not None and factor.low <= 1.0
    return _speed(row, rules).low <= _speed(fastest, rules).high


def _is_trade(row: Candidate, result: GateResult, winner: Candidate, rules: Rules) -> bool:
    """Whether a row did not pass, is clearly faster than the winner, and loses little more than what is allowed."""
    if result.outcome == "passed" or result.ruled_out or row is winner or row.latency.quantile(rules.rank_by) is None:
        return False
    near = result.outcome == "undecided" or (result.excess is not None and result.excess <= result.allowed)
    faster = _speed(row, rules).value < _speed(winner, rules).value and not _as_fast(winner, row, rules)
    return near and faster


def _trade(row: Candidate, result: GateResult, winner: Candidate, reference: Candidate | None) -> Trade:
    """Describe a row outside the gate: `22.0× faster than the teacher (the winner: 4.8×) for 0.1 points more …`."""
    factors = [reference and ratio(reference.latency, one.latency) for one in (row, winner)]
    speeds = [f"{factor.value:.1f}×" for factor in factors if factor]
    text = f"just outside the gate is {row.key}, "
    text += f"{speeds[0]} faster than the teacher (the winner: {speeds[1]})" if len(speeds) == 2 else "faster"
    larger = row.select.larger_is_better if row.select else True
    if result.excess and result.excess > 0:
        text += f" for {format_points(result.excess, larger)} more than allowed"
    elif result.outcome == "undecided":
        text += f", which {_loss(result.drop, larger)}"
    else:  # strict: its interval is not within what is allowed
        text += f": it {'; '.join(result.reasons)}"
    if result.outcome == "undecided":
        text += f" (undecided: {format_more_rows(result.more_rows)})"
    return Trade(key=row.key, text=text)


def _why(winner: Candidate, fastest: Candidate, timed: int, result: GateResult) -> str:
    passed = result.outcome == "passed"
    among = f"of {timed} {'that passed the gate' if passed else 'undecided ones'}"
    if timed == 1:
        among = f"and the only {'one that passed the gate' if passed else 'undecided one'}"
    won = f"the fastest {among}" if fastest is winner else f"as fast as {fastest.key} and the smaller, {among}"
    larger = winner.select.larger_is_better if winner.select else True
    more = "" if passed else f"; {format_more_rows(result.more_rows)}"
    return f"{won} ({_loss(result.drop, larger)}, {format_points(result.allowed, larger)} allowed{more})"


def _loss(drop: float | None, larger: bool) -> str:
    return "loss unknown" if drop is None else f"{format_change(drop, larger)} on select"


def _why_none(eligible: Sequence[Candidate], gates: Mapping[str, GateResult], rules: Rules) -> str:
    if eligible:
        rows = group_by_reason(
            (row.key, row.latency.reason or f"too few calls for {rules.rank_by}") for row in eligible
        )
        why = next(iter(rows)) if len(rows) == 1 else "; ".join(f"{keys}: {reason}" for reason, keys in rows.items())
        passed = "passed the gate" if gates[eligible[0].key].outcome == "passed" else "the gate left undecided"
        return f"no variant that {passed} could be timed: {why}"
    if not gates:
        return "nothing that may win was measured here"
    if ruled_out := {key: result.ruled_out for key, result in gates.items() if result.ruled_out}:
        rows = group_by_reason(ruled_out.items())
        excluded = "; ".join(f"{keys}: {reason}" for reason, keys in rows.items())
        gates = {key: result for key, result in gates.items() if not result.ruled_out}
        if not gates:
            return f"no variant runs in {' and '.join(rules.runs_in)}; {excluded}"
        return f"{_why_none([], gates, rules)}; ruled out are {excluded}"
    known = {key: result for key, result in gates.items() if result.drop is not None} or gates
    key = min(known, key=lambda one: float("inf") if (drop := known[one].drop) is None else drop)
    return f"no variant passed the gate; the nearest, {key}, {'; '.join(known[key].reasons)}"
