"""Scores of one set of answers with the draws behind their intervals, and the paired difference of two sets.

All intervals over the same rows come from the same draws, which is what makes differences paired. A set of answers is
scored once however often it is compared: the teacher's draws serve every candidate.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compress.errors import ModelError, UsageError, nearest
from compress.measure.quality.quality_result import Difference
from compress.measure.quality.significance import Interval, drawn_times, mcnemar, paired_p_value, percentile_interval
from compress.measure.result_base import Score
from compress.model_info import TaskInfo
from compress.tasks.base import Kind, Metric

Predictions = NDArray[Any]
"""One answer a row, as ``Kind.answers`` gives them."""

KEPT = 64 << 20
"""Bytes of draws that are kept to be used again; those of larger sets are drawn again each time."""


class BootstrapScorer:
    """Scores of any answers to one task with ``resampling`` draws of the rows; remembers what it has scored."""

    def __init__(self, kind: Kind, task: TaskInfo, resampling: int = 1000, seed: int = 0) -> None:
        self.kind, self.task = kind, task
        self.metric = _metric(kind, task.metric)
        self._resampling, self._seed = resampling, seed
        self._scored: dict[bytes, Mapping[str, Interval]] = {}
        self._times: dict[int, list[NDArray[np.uint8]]] = {}

    def intervals(self, answers: Predictions, gold: NDArray[Any]) -> Mapping[str, Interval]:
        """Every metric of ``answers``, with its interval."""
        check_answers(answers, gold)
        key = _digest(answers, gold)
        if key not in self._scored:
            self._scored[key] = self._score(answers, gold)
        return self._scored[key]

    def primary(self, answers: Predictions, gold: NDArray[Any]) -> Interval:
        """The primary metric alone."""
        return self.intervals(answers, gold)[self.metric.name]

    def difference(self, answers: Predictions, others: Predictions, gold: NDArray[Any]) -> Difference:
        """How much better ``answers`` are than ``others`` in the primary metric; below zero is always a loss."""
        ours, theirs = self.primary(answers, gold), self.primary(others, gold)
        sign = 1.0 if self.metric.larger_is_better else -1.0
        gained = percentile_interval(sign * (ours.value - theirs.value), sign * (ours.resampled - theirs.resampled))
        ends = {"value": gained.value, "low": gained.low, "high": gained.high}
        if self.metric.is_accuracy:
            right, also = self.kind.correct(answers, gold), self.kind.correct(others, gold)
            if right is not None and also is not None:
                return Difference(**ends, p_value=mcnemar(right, also), test="mcnemar")
        return Difference(**ends, p_value=paired_p_value(gained.resampled), test="paired bootstrap")

    def times(self, rows: int) -> Iterator[NDArray[np.float64]]:
        """How often each of ``rows`` was drawn, some draws at a time: (draws, rows)."""
        if rows in self._times:
            yield from (some.astype(np.float64) for some in self._times[rows])
            return
        kept: list[NDArray[np.uint8]] = []
        room = KEPT - sum(some.nbytes for draws in self._times.values() for some in draws)
        fits = rows * self._resampling <= room
        for some in drawn_times(rows, self._resampling, self._seed):
            if fits:
                kept.append(some)
            yield some.astype(np.float64)
        if fits:
            self._times[rows] = kept

    def _score(self, answers: Predictions, gold: NDArray[Any]) -> dict[str, Interval]:
        values = self.kind.score(answers, gold, self.task)
        drawn: dict[str, list[NDArray[np.float64]]] = {name: [] for name in values}
        for times in self.times(len(gold)):
            for name, some in self.kind.weighted_scores(answers, gold, self.task, times).items():
                drawn[name].append(some)
        return {name: percentile_interval(value, np.concatenate(drawn[name])) for name, value in values.items()}


def to_score(interval: Interval) -> Score:
    """An interval as it is kept."""
    return Score(value=interval.value, low=interval.low, high=interval.high)


def check_answers(answers: Predictions, gold: NDArray[Any]) -> None:
    """Refuse answers that cannot be scored: too many or few, or no numbers."""
    if len(answers) != len(gold):
        raise ModelError(f"{len(answers)} answers were given for {len(gold)} rows.")
    if len(gold) == 0:
        raise ModelError("there are no rows to score.")
    if np.issubdtype(answers.dtype, np.floating) and not np.isfinite(answers).all():
        broken = int((~np.isfinite(answers.reshape(len(answers), -1))).any(axis=1).sum())
        raise ModelError(
            f"the model's answers are not finite numbers on {broken} of {len(answers)} rows.",
            hint="weights or activations overflowed: try a wider precision (fp32), or train again at a lower rate",
        )


def _metric(kind: Kind, name: str) -> Metric:
    for known in kind.metrics:
        if known.name == name:
            return known
    names = [known.name for known in kind.metrics]
    raise UsageError(f"{kind.name} has no metric called '{name}'{nearest(name, names)}")


def _digest(*arrays: NDArray[Any]) -> bytes:
    """What two arrays of the same content share, whatever object holds it."""
    digest = hashlib.blake2b(digest_size=16)
    for array in arrays:
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.digest()
