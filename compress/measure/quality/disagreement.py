"""The rows on which a model and its teacher differ most: where to look when a score is lost."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from compress.measure.quality.bootstrap_scorer import Predictions
from compress.measure.quality.quality_result import Disagreement
from compress.model_info import TaskInfo
from compress.tasks.kind import Kind

MAX_ROWS = 20
MIN_DISTANCE = 0.05
"""Distance from which rows with the same decision are reported: of probabilities, or in spreads of the gold values
where there are no decisions. Smaller ones are rounding differences of another runtime or precision."""


def largest_disagreements(
    kind: Kind, task: TaskInfo, answers: Predictions, teachers: Predictions, gold: NDArray[Any], most: int = MAX_ROWS
) -> tuple[Disagreement, ...]:
    """Return up to ``most`` rows: those with different decisions first, then those beyond ``MIN_DISTANCE``.

    Both in decreasing distance, equal ones in the order of the rows.
    """
    distances = kind.distance(answers, teachers)
    if distances is None:
        return ()
    same = kind.same_decision(answers, teachers)
    flipped = np.zeros(len(distances), dtype=np.bool_) if same is None else ~same
    least = MIN_DISTANCE * kind.label_spread(gold, task)
    order = np.lexsort((-distances, ~flipped))[:most]  # stable: of equals the earlier ones
    rows = order[flipped[order] | (distances[order] > least)]
    ours, theirs = kind.describe(answers[rows], task), kind.describe(teachers[rows], task)
    return tuple(
        Disagreement(row=int(row), distance=float(distances[row]), ours=our, teachers=their, gold=right)
        for row, our, their, right in zip(rows, ours, theirs, kind.describe_gold(gold[rows], task), strict=True)
    )
