"""Whether a model is right as often as it says: reliability bins and the expected calibration error.

Guo and others (2017) show that modern networks claim more than they hold. Bins of equal numbers (Nguyen and O'Connor,
2015) are used rather than bins of equal width, of which a confident model fills only the last.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from compress.measure.quality.bootstrap_scorer import BootstrapScorer, Predictions, to_score
from compress.measure.quality.quality_result import Bin, Calibration
from compress.measure.quality.significance import basic_interval
from compress.tasks.base import Confidence

BINS = 15
CHANCE_DRAWS = 200
"""Sets of decisions that are drawn to see what error chance makes of a perfectly calibrated model."""


def calibrate(drawn: BootstrapScorer, answers: Predictions, gold: NDArray[Any]) -> Calibration | None:
    """The calibration of ``answers``; None where the kind gives no probabilities, or there was nothing to decide."""
    found = drawn.kind.confidence(answers, gold)
    if found is None or not len(found.stated):
        return None
    places = bin_places(found.stated)
    counts = np.bincount(places)
    confidence, correct = (
        np.bincount(places, weights=values) / counts for values in (found.stated, found.right.astype(np.float64))
    )
    error = expected_error(found, places)
    resampled = _resampled(drawn, found, places, len(gold))
    calibration = Calibration(
        error=to_score(basic_interval(error, resampled)),
        by_chance=_by_chance(found, places),
        bins=tuple(
            Bin(confidence=float(said), correct=float(held), rows=int(rows))
            for said, held, rows in zip(confidence, correct, counts, strict=True)
        ),
    )
    return calibration.model_copy(update={"over_confident": calibration.lean == "overconfident"})


def bin_places(stated: NDArray[np.float64], bins: int = BINS) -> NDArray[np.intp]:
    """The bin of each decision, from 0: about equally many in each, equal confidences never apart, none empty."""
    edges = np.unique(np.quantile(stated, np.arange(1, bins) / bins))
    places = np.searchsorted(edges, stated, side="left")
    packed: NDArray[np.intp] = np.unique(places, return_inverse=True)[1]
    return packed


def expected_error(found: Confidence, places: NDArray[np.intp]) -> float:
    """The mean distance between confidence and correctness of the bins, weighted by their decisions."""
    return _error(places, found.right - found.stated)


def _error(places: NDArray[np.intp], surplus: NDArray[np.float64]) -> float:
    return float(np.abs(np.bincount(places, weights=surplus)).sum() / len(surplus))


def _resampled(drawn: BootstrapScorer, found: Confidence, places: NDArray[np.intp], rows: int) -> NDArray[np.float64]:
    """The error in every draw of rows: a row brings all of its decisions along."""
    bins = int(places.max()) + 1
    flat = np.bincount(found.row * bins + places, weights=found.right - found.stated, minlength=rows * bins)
    surplus, decisions = flat.reshape(rows, bins), np.bincount(found.row, minlength=rows).astype(np.float64)
    errors = [np.abs(times @ surplus).sum(axis=1) / np.maximum(times @ decisions, 1.0) for times in drawn.times(rows)]
    return np.concatenate(errors)


def _by_chance(found: Confidence, places: NDArray[np.intp]) -> float:
    """The 95th percentile of the error when every decision is right exactly as often as the model says."""
    random = np.random.default_rng(0)
    errors = [
        _error(places, (random.random(len(found.stated)) < found.stated) - found.stated) for _ in range(CHANCE_DRAWS)
    ]
    return float(np.quantile(errors, 0.95))
