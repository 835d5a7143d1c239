"""The mean of values that come in documents, with a 95 % interval that counts documents and not values."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from compress.measure.quality.clustered_ci import t_quantile


class Estimate(BaseModel):
    """A mean with its 95 % interval."""

    model_config = ConfigDict(frozen=True)

    value: float
    low: float
    high: float

    @property
    def text(self) -> str:
        """`5.12 (5.05 to 5.19)`."""
        return f"{self.value:.3f} ({self.low:.3f} to {self.high:.3f})"

    def exponential(self) -> Estimate:
        """Return the estimate on the scale of perplexity."""
        return Estimate(value=math.exp(self.value), low=math.exp(self.low), high=math.exp(self.high))


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
        return Estimate(value=mean, low=-math.inf, high=math.inf)
    residuals = sums - mean * counts
    error = math.sqrt(float((residuals**2).sum()) * number / (number - 1)) / total
    reach = t_quantile(number - 1) * error
    return Estimate(value=mean, low=mean - reach, high=mean + reach)
