"""Scores of predictions with bootstrap intervals, and the paired difference of two models' predictions.

All intervals over the same rows use the same resamples, which makes differences paired. Predictions are scored once
however often they are compared: the teacher's resampled scores serve every candidate.
"""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compress.errors import ModelError, UsageError, nearest
from compress.measure.quality.quality_result import Changed, Difference
from compress.measure.quality.significance import Interval, draw_counts, mcnemar, paired_p_value, percentile_interval
from compress.measure.result_base import Score
from compress.model_folder.model_info import TaskInfo
from compress.tasks.base import Metric
from compress.tasks.kind import Kind
from compress.tasks.kinds.text_kind import check_finite

Predictions = NDArray[Any]
"""One prediction a row, as from ``Kind.answers`` gives them."""

ROUNDED = 1e-3
"""How far apart the answers of two files of one model may be."""
CACHED_BYTES = 64 << 20
"""Bytes of resamples that are cached, those of larger sets are drawn again each time; and of the values they give."""


class BootstrapScorer:
    """Scores predictions for one task with ``resampling`` resamples of the rows; caches what it has scored."""

    def __init__(self, kind: Kind, task: TaskInfo, resampling: int = 1000, seed: int = 0) -> None:
        self.kind, self.task = kind, task
        self.metric = _metric(kind, task.metric)
        self._resampling, self._seed = resampling, seed
        self._scored: dict[bytes, Mapping[str, Interval]] = {}
        self._counts: dict[int, list[NDArray[np.uint8]]] = {}

    def intervals(self, answers: Predictions, gold: NDArray[Any]) -> Mapping[str, Interval]:
        """Return every metric of ``answers``, with its interval."""
        if len(answers) != len(gold) or len(gold) == 0:
            raise ModelError(f"{len(answers)} predictions for {len(gold)} rows.")
        if np.issubdtype(answers.dtype, np.floating):
            check_finite(answers, "rows")
        key = _digest(answers, gold)
        found = self._scored.pop(key, None) or self._score(answers, gold)
        self._scored[key] = found  # the last one used comes last
        if len(self._scored) * len(found) * self._resampling * np.float64().nbytes > CACHED_BYTES:
            del self._scored[next(iter(self._scored))]
        return found

    def primary(self, answers: Predictions, gold: NDArray[Any]) -> Interval:
        """Return the primary metric with its interval."""
        return self.intervals(answers, gold)[self.metric.name]

    def difference(self, answers: Predictions, others: Predictions, gold: NDArray[Any]) -> Difference:
        """Return how much better ``answers`` are than ``others`` in the primary metric; below zero is always a loss."""
        ours, theirs = self.primary(answers, gold), self.primary(others, gold)
        sign = 1.0 if self.metric.larger_is_better else -1.0
        gained = percentile_interval(sign * (ours.value - theirs.value), sign * (ours.resampled - theirs.resampled))
        ends = {"value": gained.value, "low": gained.low, "high": gained.high}
        if self.metric.is_accuracy:
            right, also = self.kind.correct(answers, gold), self.kind.correct(others, gold)
            if right is not None and also is not None:
                changed = None if self._are_same(answers, others) else _changed(right, also)
                return Difference(**ends, p_value=mcnemar(right, also), test="mcnemar", changed=changed)
        return Difference(**ends, p_value=paired_p_value(gained.resampled, len(gold)), test="paired bootstrap")

    def _are_same(self, answers: Predictions, others: Predictions) -> bool:
        """Return whether two models answer alike but for rounding, as two files of one model do."""
        apart = self.kind.distance(answers, others)
        return apart is not None and float(apart.max()) <= ROUNDED

    def resample_counts(self, rows: int) -> Iterator[NDArray[np.float64]]:
        """Yield how often each of ``rows`` was drawn, several resamples at a time: (resamples, rows)."""
        if rows not in self._counts and (rows + sum(self._counts)) * self._resampling <= CACHED_BYTES:
            self._counts[rows] = list(draw_counts(rows, self._resampling, self._seed))
        blocks = self._counts.get(rows) or draw_counts(rows, self._resampling, self._seed)
        yield from (counts.astype(np.float64) for counts in blocks)

    def _score(self, answers: Predictions, gold: NDArray[Any]) -> dict[str, Interval]:
        values = self.kind.score(answers, gold, self.task)
        drawn: dict[str, list[NDArray[np.float64]]] = {name: [] for name in values}
        for times in self.resample_counts(len(gold)):
            for name, some in self.kind.weighted_scores(answers, gold, self.task, times).items():
                drawn[name].append(some)
        return {name: percentile_interval(value, np.concatenate(drawn[name])) for name, value in values.items()}


def _changed(right: NDArray[np.bool_], also: NDArray[np.bool_]) -> Changed:
    return Changed(lost=int((also & ~right).sum()), won=int((right & ~also).sum()), rows=len(right))


def to_score(interval: Interval) -> Score:
    """Convert an interval to a stored score."""
    return Score(value=interval.value, low=interval.low, high=interval.high)


def _metric(kind: Kind, name: str) -> Metric:
    metrics = {metric.name: metric for metric in kind.metrics}
    if name not in metrics:
        raise UsageError(f"{kind.name} has no metric called '{name}'{nearest(name, metrics)}")
    return metrics[name]


def _digest(*arrays: NDArray[Any]) -> bytes:
    """Return a digest of the arrays' content."""
    digest = hashlib.blake2b(digest_size=16)
    for array in arrays:
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.digest()
