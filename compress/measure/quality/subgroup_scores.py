"""Scores on parts of the rows: by length, and by the values of a column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compress.errors import UsageError
from compress.measure.quality.bootstrap_scorer import BootstrapScorer, Predictions, to_score
from compress.measure.quality.quality_result import SliceScore
from compress.tasks.parsing.columns import EMPTY_VALUE

ENOUGH_ROWS = 30
"""Rows from which a score is told: of fewer, the interval is so wide, and so wrong, that the value misleads."""
MOST_VALUES = 20
"""Values of a column that are told apart; the rarer ones are put together. Columns of more numbers become ranges."""


@dataclass(frozen=True)
class Group:
    """Some of the rows."""

    name: str
    rows: NDArray[np.intp]


def by_length(lengths: NDArray[Any]) -> list[Group]:
    """The quartiles of the rows' lengths in pieces, shortest first; rows of equal length are never told apart."""
    return _quartiles(np.asarray(lengths, dtype=np.float64), "pieces")


def by_column(column: str, values: Sequence[str]) -> list[Group]:
    """The rows of each value, most frequent first; quartiles where there are many values and all are numbers."""
    distinct, places, counts = np.unique(np.asarray(values, dtype=np.str_), return_inverse=True, return_counts=True)
    if len(distinct) > MOST_VALUES:
        numbers = _numbers(distinct)
        if numbers is not None:
            return _quartiles(numbers[places])
    order = np.argsort(-counts, kind="stable")
    groups = [Group(str(distinct[place]), np.flatnonzero(places == place)) for place in order[:MOST_VALUES]]
    rest = order[MOST_VALUES:]
    if len(rest):
        groups.append(Group(f"{len(rest):,} other values", np.flatnonzero(np.isin(places, rest))))
    return groups


def score_groups(
    drawn: BootstrapScorer,
    groups: Sequence[Group],
    answers: Predictions,
    gold: NDArray[Any],
    teacher: Predictions | None = None,
) -> tuple[SliceScore, ...]:
    """The primary score on each group, and against the teacher's there."""
    total = sum(len(group.rows) for group in groups)
    if total != len(gold):
        raise UsageError(f"the slices hold {total} rows where {len(gold)} were scored.")
    return tuple(_score_group(drawn, group, answers, gold, teacher) for group in groups)


def _score_group(
    drawn: BootstrapScorer, group: Group, answers: Predictions, gold: NDArray[Any], teacher: Predictions | None
) -> SliceScore:
    rows, known = len(group.rows), gold[group.rows]
    if rows < ENOUGH_ROWS:
        return SliceScore(name=group.name, rows=rows, reason=f"fewer than {ENOUGH_ROWS} rows")
    if drawn.metric.needs_varied_labels and not drawn.kind.has_varied_labels(known):
        reason = f"{drawn.metric.name} means nothing where every row has the same answer"
        return SliceScore(name=group.name, rows=rows, reason=reason)
    given = answers[group.rows]
    return SliceScore(
        name=group.name,
        rows=rows,
        primary=to_score(drawn.primary(given, known)),
        versus_teacher=None if teacher is None else drawn.difference(given, teacher[group.rows], known),
    )


def _quartiles(values: NDArray[np.float64], unit: str = "") -> list[Group]:
    """Up to four ranges of about equally many rows, named by the least and the greatest value in each."""
    known = np.flatnonzero(~np.isnan(values))
    places = np.searchsorted(np.unique(np.quantile(values[known], (0.25, 0.5, 0.75))), values[known], side="left")
    groups = []
    for place in np.unique(places):
        rows = known[places == place]
        low, high = f"{values[rows].min():.10g}", f"{values[rows].max():.10g}"
        spanned = low if low == high else f"{low}-{high}" if unit else f"{low} to {high}"
        groups.append(Group(f"{spanned} {unit}".rstrip(), rows))
    if len(known) < len(values):
        groups.append(Group(EMPTY_VALUE, np.flatnonzero(np.isnan(values))))
    return groups


def _numbers(distinct: NDArray[np.str_]) -> NDArray[np.float64] | None:
    """The values as numbers, empty ones as nan; None where any is something else."""
    try:
        numbers = [float("nan") if value == EMPTY_VALUE else float(value) for value in distinct.tolist()]
    except ValueError:
        return None
    found = np.asarray(numbers)
    return found if np.isfinite(found[distinct != EMPTY_VALUE]).all() else None
