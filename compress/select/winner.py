"""The winner on a target: the fastest candidate that passes the gate; among equally fast ones the smallest.

The reference (the teacher in PyTorch) is no candidate: where nothing else passes, nothing wins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from compress.errors import group_by_reason
from compress.measure.result_base import Score
from compress.measure.timing.latency import ratio
from compress.select.gate import format_points, gate
from compress.select.selection import Candidate, GateResult, Rules, TargetSelection


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
    gates = {
        row.key: gate(rules, row.select, classes, quantized=row.quantized) for row in candidates if not row.reference
    }
    passing = [row for row in candidates if row.key in gates and gates[row.key].passed]
    timed = [row for row in passing if row.latency.quantile(rules.rank_by) is not None]
    if missing is not None:
        return TargetSelection(target=target, winner=None, why=f"not measured: {missing}", gates=gates)
    if not timed:
        return TargetSelection(target=target, winner=None, why=_why_none(passing, gates, rules), gates=gates)
    fastest = min(timed, key=lambda row: _speed(row, rules).value)
    equals = [row for row in timed if row is fastest or _as_fast(row, fastest, rules)]
    winner = min(equals, key=lambda row: (float("inf") if row.bytes_total is None else row.bytes_total, row.key))
    why = _why(winner, fastest, len(timed), gates[winner.key])
    return TargetSelection(target=target, winner=winner.key, why=why, gates=gates)


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


def _why(winner: Candidate, fastest: Candidate, timed: int, result: GateResult) -> str:
    among = f"of {timed} that passed the gate" if timed > 1 else "and the only one that passed the gate"
    won = f"the fastest {among}" if fastest is winner else f"as fast as {fastest.key} and the smaller, {among}"
    larger = winner.select.larger_is_better if winner.select else True
    return f"{won} ({_loss(result.drop, larger)}, {format_points(result.allowed, larger)} allowed)"


def _loss(drop: float | None, larger: bool) -> str:
    if drop is None:
        return "loss unknown"
    word = "lost" if drop > 0 else "gained"
    return f"{word} {format_points(abs(drop), larger)} on select" if drop else "lost nothing on select"


def _why_none(passing: Sequence[Candidate], gates: Mapping[str, GateResult], rules: Rules) -> str:
    if passing:
        rows = group_by_reason((row.key, row.latency.reason or f"too few calls for {rules.rank_by}") for row in passing)
        why = next(iter(rows)) if len(rows) == 1 else "; ".join(f"{keys}: {reason}" for reason, keys in rows.items())
        return f"no variant that passed the gate could be timed: {why}"
    if not gates:
        return "nothing that may win was measured here"
    known = {key: result for key, result in gates.items() if result.drop is not None} or gates
    key = min(known, key=lambda one: float("inf") if (drop := known[one].drop) is None else drop)
    return f"no variant passed the gate; the nearest, {key}, {'; '.join(known[key].reasons)}"
