"""Whether a model is right as often as its confidence says: reliability bins and the expected calibration error.

Guo and others (2017) show that modern networks are over-confident. Bins of equal numbers (Nguyen and O'Connor,
2015) are used rather than bins of equal width, of which a confident model fills only the last.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from compress.measure.quality.bootstrap_scorer import BootstrapScorer, Predictions, to_score
from compress.measure.quality.quality_result import Bin, Calibration
from compress.measure.quality.significance import basic_interval
from compress.tasks.base import Confidence

BINS = 15
CHANCE_DRAWS = 200
"""Simulated sets of decisions that show the error of a perfectly calibrated model by chance."""


def calibrate(scorer: BootstrapScorer, answers: Predictions, gold: NDArray[Any]) -> Calibration | None:
    """Return the calibration of ``answers``; None for kinds without probabilities, or without any decision."""
    confidences = scorer.kind.confidence(answers, gold)
    if confidences is None or not len(confidences.stated):
        return None
    bins_of = assign_bins(confidences.stated)
    counts = np.bincount(bins_of)
    confidence = np.bincount(bins_of, weights=confidences.stated) / counts
    correct = np.bincount(bins_of, weights=confidences.right) / counts
    error = _error(bins_of, confidences.right - confidences.stated)
    calibration = Calibration(
        error=to_score(basic_interval(error, _resampled(scorer, confidences, bins_of, len(gold)))),
        by_chance=_by_chance(confidences, bins_of),
        bins=tuple(
            Bin(confidence=float(stated), correct=float(right), rows=int(rows))
            for stated, right, rows in zip(confidence, correct, counts, strict=True)
        ),
    )
    return calibration.model_copy(update={"over_confident": calibration.lean == "overconfident"})


def assign_bins(stated: NDArray[np.float64]) -> NDArray[np.intp]:
    """Return the bin of each decision, from 0: about equally many in each, equal confidences together, none empty."""
    edges = np.unique(np.quantile(stated, np.arange(1, BINS) / BINS))
    packed: NDArray[np.intp] = np.unique(np.searchsorted(edges, stated, side="left"), return_inverse=True)[1]
    return packed


def _error(bins_of: NDArray[np.intp], surplus: NDArray[np.float64]) -> float:
    """Return the mean distance between confidence and correctness over the bins, weighted by their decisions."""
    return float(np.abs(np.bincount(bins_of, weights=surplus)).sum() / len(surplus))


def _resampled(
    scorer: BootstrapScorer, confidences: Confidence, bins_of: NDArray[np.intp], rows: int
) -> NDArray[np.float64]:
    """Return the error in every resample of rows: all decisions of a row are drawn together."""
    bins = int(bins_of.max()) + 1
    flat = np.bincount(
        confidences.row * bins + bins_of, weights=confidences.right - confidences.stated, minlength=rows * bins
    )
    surplus, decisions = flat.reshape(rows, bins), np.bincount(confidences.row, minlength=rows).astype(np.float64)
    errors = [
        np.abs(counts @ surplus).sum(axis=1) / np.maximum(counts @ decisions, 1.0)
        for counts in scorer.resample_counts(rows)
    ]
    return np.concatenate(errors)


def _by_chance(confidences: Confidence, bins_of: NDArray[np.intp]) -> float:
    """Return the 95th percentile of the error if every decision were right exactly as often as its confidence says."""
    random = np.random.default_rng(0)
    errors = [
        _error(bins_of, (random.random(len(confidences.stated)) < confidences.stated) - confidences.stated)
        for _ in range(CHANCE_DRAWS)
    ]
    return float(np.quantile(errors, 0.95))
