"""The winner on a target, why it won, and how it compares with other rows."""

from __future__ import annotations

from compress.measure.result_base import ResultModel, Score
from compress.select.selection import HeldBack, Trade

MOST_HELD_BACK = 5
"""Rows faster than the winner that are named one by one."""


class WinnerComparison(ResultModel):
    """The winner compared with another row on one target."""

    against: str
    """A description of the other row."""
    key: str
    """Its key."""
    speedup: Score | None
    """How many times faster the winner is, from the same rounds of timing."""
    smaller: float | None
    """How many times smaller the winner is, in bytes."""
    kept: float | None
    """The winner's test score over the other's; None for errors and metrics that may be negative."""
    kept_above_floor: float | None = None
    """The same ratio of what exceeds the baseline; None unless the teacher is significantly better than it."""


class Verdict(ResultModel):
    """The winner on one target, and the reason."""

    target: str
    winner: str | None
    """The key of a row."""
    why: str
    comparisons: tuple[WinnerComparison, ...] = ()
    trade: Trade | None = None
    """The fastest row just outside the gate, where it is clearly faster than the winner."""
    held_back: tuple[HeldBack, ...] = ()
    """All rows that were timed faster than the winner and did not pass the gate, the fastest first."""
    contradictions: tuple[str, ...] = ()
    """What the winner lost on test although it passed on select, each as a clause."""
    everywhere: Verdict | None = None
    """The same of the best row that runs wherever the root of a published entry does; None where that is the winner,
    where there is none, and in reports of earlier versions."""

    def comparison_with(self, key: str) -> WinnerComparison | None:
        """Return the comparison with the row of this key; None where the winner was not compared with it."""
        return next((each for each in self.comparisons if each.key == key), None)

    @property
    def reason(self) -> str:
        """Why the winner won or nothing did, what test contradicts, and the best trade outside the gate."""
        return "; ".join([self.why, *self.contradictions, *([self.trade.text] if self.trade else [])])


def held_back_lines(verdict: Verdict) -> list[str]:
    """Return a line for each row that was faster than the winner and did not pass, the fastest first.

    The one that `Verdict.reason` describes has none.
    """
    rows = [row for row in verdict.held_back if verdict.trade is None or row.key != verdict.trade.key]
    lines = [f"held back: {row.key} ({row.text})" for row in rows[:MOST_HELD_BACK]]
    if more := rows[MOST_HELD_BACK:]:
        lines.append(f"held back: {len(more)} more, with their reasons in the report (The gate, on select)")
    return lines
