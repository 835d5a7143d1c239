"""The mean of values that come in documents, with a 95 % interval that counts documents and not values."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from compress.measure.quality.significance import t_quantile

LARGEST = 700.0
"""The largest exponent whose power is a finite number."""


class Estimate(BaseModel):
    """A mean with its 95 % interval; without one where all values are of one document."""

    model_config = ConfigDict(frozen=True)

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def text(self) -> str:
        """`5.12 (5.05 to 5.19)`."""
        if self.low is None or self.high is None:
            return f"{self.value:.3f} (one document: no interval)"
        return f"{self.value:.3f} ({self.low:.3f} to {self.high:.3f})"

    def exponential(self) -> Estimate:
        """Return the estimate on the scale of perplexity."""
        bounds = [None if bound is None else _exp(bound) for bound in (self.low, self.high)]
        return Estimate(value=_exp(self.value), low=bounds[0], high=bounds[1])


def _exp(value: float) -> float:
    """Return e to this power, at most the largest number that is stored."""
    return math.exp(min(value, LARGEST))


def clustered_mean(values: NDArray[np.float64], clusters: NDArray[np.int64]) -> Estimate:
    """Return the mean of values (count,), each of a cluster, by the linearised variance of a ratio.

    Words of one document are alike, so more of them do not make the mean as certain as words of other documents would
    (Cochran, Sampling Techniques, 3rd edition, 1977, section 6.3).
    """
    _, group = np.unique(clusters, return_inverse=True)
    sums, counts = np.bincount(group, values), np.bincount(group)
    total, number = float(len(values)), len(sums)
    mean = float(values.sum() / total)
    if number < 2:
        return Estimate(value=mean)
    residuals = sums - mean * counts
    error = math.sqrt(float((residuals**2).sum()) * number / (number - 1)) / total
    reach = t_quantile(number - 1) * error
    return Estimate(value=mean, low=mean - reach, high=mean + reach)
