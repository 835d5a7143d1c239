"""Scores of probes with intervals: sums over held-out rows, of which a bootstrap draws rows with all of their items."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from compress.measure.result_base import Score
from compress.probe.probe_items import ProbeTask
from compress.probe.probe_result import LayerScore, TaskScores

DRAWS = 1000


@dataclass(frozen=True)
class Outcome:
    """What one probe gave."""

    name: str
    """`embeddings`, the number of a layer, `mean`, `mix`."""
    statistics: NDArray[np.float64]
    """By held-out row, the sums that the score is made of."""
    bits: float | None = None
    """Of the online code, for all fitted items."""
    control: NDArray[np.float64] | None = None
    """The same statistics for the control task."""
    weights: tuple[float, ...] | None = None
    """Of the layers in a mix."""


@dataclass(frozen=True)
class ProbedTask:
    """The probes of one task on one model."""

    task: ProbeTask
    outcomes: tuple[Outcome, ...]
    uniform_bits: float | None
    """Of the fitted answers where every one is equally likely."""
    floor: float
    """The score of the answer that is most frequent in train, whatever the item."""
    fitted: int
    scored: int


def score_statistics(
    task: ProbeTask, outputs: Tensor, targets: Tensor, groups: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return by held-out row the sums that the score is made of."""
    if task.answers == "classes":
        each = torch.stack([(outputs.argmax(1) == targets).double(), torch.ones(len(targets), dtype=torch.float64)], 1)
    elif task.answers == "labels":
        said, true = outputs > 0, targets > 0.5
        each = torch.stack([(said & true).sum(1), said.sum(1) + true.sum(1)], 1).double()
    else:
        x, y = _ranks(outputs.squeeze(1)), _ranks(targets)
        each = torch.stack([torch.ones_like(x), x, y, x * x, y * y, x * y], 1)
    rows, row_of = np.unique(groups, return_inverse=True)
    by_row = np.zeros((len(rows), each.shape[1]))
    np.add.at(by_row, row_of, each.numpy())
    return by_row


def _ranks(values: Tensor) -> Tensor:
    """Return ranks from -1 to 1; those of equal values are their mean."""
    _, inverse, counts = torch.unique(values, return_inverse=True, return_counts=True)
    ends = counts.cumsum(0).double()
    middle = ends - (counts.double() - 1) / 2
    ranks: Tensor = 2 * middle[inverse] / len(values) - 1
    return ranks


METRICS = {"classes": "accuracy", "labels": "micro F1", "number": "Spearman"}
"""What a probe is scored by."""


def score_of(task: ProbeTask, sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the score from sums of statistics, (..., statistics)."""
    parts = np.moveaxis(sums, -1, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        if task.answers == "classes":
            return np.asarray(parts[0] / parts[1])
        if task.answers == "labels":
            return np.asarray(np.nan_to_num(2 * parts[0] / parts[1]))
        count, x, y, xx, yy, xy = parts
        spread = np.sqrt((xx - x * x / count) * (yy - y * y / count))
        return np.asarray(np.nan_to_num((xy - x * y / count) / spread))


def bootstrap_weights(rows: int, seed: int) -> NDArray[np.float64]:
    """Return how often each held-out row is drawn, (draws, rows)."""
    return np.random.default_rng(seed).multinomial(rows, np.full(rows, 1 / rows), DRAWS).astype(np.float64)


def task_scores(model: str, probed: ProbedTask, seed: int) -> TaskScores:
    """Return the scores of a task's probes, with intervals over draws of held-out rows that all of them share."""
    task, outcomes = probed.task, probed.outcomes
    weights = bootstrap_weights(len(outcomes[0].statistics), seed)
    draws = {each.name: score_of(task, weights @ each.statistics) for each in outcomes}
    values = {each.name: float(score_of(task, each.statistics.sum(0))) for each in outcomes}
    single = [each.name for each in outcomes if each.name not in ("mean", "mix")]
    best = max(single, key=values.__getitem__)
    ranked = np.argmax(np.stack([draws[name] for name in single]), axis=0)
    low, high = np.quantile(ranked, (0.025, 0.975), method="nearest")
    mixed = next((each.weights for each in outcomes if each.weights), ())
    shares = dict(zip(single, mixed, strict=False))

    layers = []
    for each in outcomes:
        control = None if each.control is None else float(score_of(task, each.control.sum(0)))
        compression = probed.uniform_bits / each.bits if probed.uniform_bits and each.bits else None
        layers.append(
            LayerScore(
                layer=each.name,
                score=Score(value=values[each.name], **_bounds(draws[each.name])),
                compression=compression,
                kilobits=None if each.bits is None else each.bits / 1000,
                selectivity=None if control is None else values[each.name] - control,
                weight=shares.get(each.name),
            )
        )
    return TaskScores(
        model=model,
        task=task.name,
        metric=METRICS[task.answers],
        classes=len(task.classes),
        reads=task.reads,
        fitted=probed.fitted,
        scored=probed.scored,
        floor=probed.floor,
        layers=tuple(layers),
        best=best,
        best_between=(single[int(low)], single[int(high)]),
        equal=tuple(name for name in values if name != best and np.quantile(draws[best] - draws[name], 0.025) <= 0),
    )


def _bounds(draws: NDArray[np.float64]) -> dict[str, float]:
    low, high = np.quantile(draws, (0.025, 0.975))
    return {"low": float(low), "high": float(high)}
