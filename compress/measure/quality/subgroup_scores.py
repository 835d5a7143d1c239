"""Scores on subgroups of the rows: by length, and by the values of a column."""

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

MIN_ROWS = 30
"""Rows from which a score is given: with fewer, the interval is so wide and so inaccurate that the value misleads."""
MAX_VALUES = 20
"""Values of a column with a group of their own; rarer ones share a group. Columns with more numbers become ranges."""


@dataclass(frozen=True)
class Subgroup:
    """A named subset of the rows."""

    name: str
    rows: NDArray[np.intp]


def by_length(lengths: NDArray[Any]) -> list[Subgroup]:
    """Return the quartiles of the rows' lengths in pieces, shortest first; rows of equal length stay together."""
    return _quartiles(np.asarray(lengths, dtype=np.float64), "pieces")


def by_column(values: Sequence[str]) -> list[Subgroup]:
    """Return the rows of each value, most frequent first; quartiles where there are many values and all are numbers."""
    distinct, group_of, counts = np.unique(np.asarray(values, dtype=np.str_), return_inverse=True, return_counts=True)
    if len(distinct) > MAX_VALUES:
        numbers = _numbers(distinct)
        if numbers is not None:
            return _quartiles(numbers[group_of])
    order = np.argsort(-counts, kind="stable")
    groups = [Subgroup(str(distinct[index]), np.flatnonzero(group_of == index)) for index in order[:MAX_VALUES]]
    rest = order[MAX_VALUES:]
    if len(rest):
        groups.append(Subgroup(f"{len(rest):,} other values", np.flatnonzero(np.isin(group_of, rest))))
    return groups


def score_groups(
    scorer: BootstrapScorer,
    groups: Sequence[Subgroup],
    answers: Predictions,
    gold: NDArray[Any],
    teacher: Predictions | None = None,
) -> tuple[SliceScore, ...]:
    """Return the primary score on each group, and its difference to the teacher's."""
    total = sum(len(group.rows) for group in groups)
    if total != len(gold):
        raise UsageError(f"the slices have {total} rows and {len(gold)} were scored.")
    return tuple(_score_group(scorer, group, answers, gold, teacher) for group in groups)


def _score_group(
    scorer: BootstrapScorer, group: Subgroup, answers: Predictions, gold: NDArray[Any], teacher: Predictions | None
) -> SliceScore:
    rows, known = len(group.rows), gold[group.rows]
    if rows < MIN_ROWS:
        return SliceScore(name=group.name, rows=rows, reason=f"fewer than {MIN_ROWS} rows")
    if scorer.metric.needs_varied_labels and not scorer.kind.has_varied_labels(known):
        reason = f"{scorer.metric.name} is undefined where every row has the same answer"
        return SliceScore(name=group.name, rows=rows, reason=reason)
    given = answers[group.rows]
    return SliceScore(
        name=group.name,
        rows=rows,
        primary=to_score(scorer.primary(given, known)),
        versus_teacher=None if teacher is None else scorer.difference(given, teacher[group.rows], known),
    )


def _quartiles(values: NDArray[np.float64], unit: str = "") -> list[Subgroup]:
    """Return up to four ranges of about equally many rows, named by the least and the greatest value in each."""
    known = np.flatnonzero(~np.isnan(values))
    group_of = np.searchsorted(np.unique(np.quantile(values[known], (0.25, 0.5, 0.75))), values[known], side="left")
    groups = []
    for index in np.unique(group_of):
        rows = known[group_of == index]
        low, high = f"{values[rows].min():.10g}", f"{values[rows].max():.10g}"
        range_name = low if low == high else f"{low}-{high}" if unit else f"{low} to {high}"
        groups.append(Subgroup(f"{range_name} {unit}".rstrip(), rows))
    if len(known) < len(values):
        groups.append(Subgroup(EMPTY_VALUE, np.flatnonzero(np.isnan(values))))
    return groups


def _numbers(distinct: NDArray[np.str_]) -> NDArray[np.float64] | None:
    """Return the values as numbers, empty ones as nan; None where any is something else."""
    try:
        numbers = [float("nan") if value == EMPTY_VALUE else float(value) for value in distinct.tolist()]
    except ValueError:
        return None
    parsed = np.asarray(numbers)
    return parsed if np.isfinite(parsed[distinct != EMPTY_VALUE]).all() else None
