"""The outputs of a predictor for all rows of a role."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from compress.runtime.predictor import Predictor
from compress.tasks.kind import Arrays


class EncodedRows(Protocol):
    """As much of ``data.batches.Encoded`` as predicting needs."""

    @property
    def lengths(self) -> NDArray[Any]:
        """Pieces of each example."""
        ...

    def batch(self, indices: NDArray[Any]) -> Arrays:
        """The padded batch of these examples."""
        ...


def predict_role(predictor: Predictor, encoded: EncodedRows, batch: int) -> Arrays:
    """The outputs of all examples in their own order, run in batches of ``batch`` of similar length.

    Where a batch is asked for because the answers depend on it, the batches are still the same for every model: they
    follow from the lengths alone.
    """
    order = np.argsort(encoded.lengths, kind="stable")
    outputs: dict[str, NDArray[Any]] = {}
    for start in range(0, len(order), batch):
        indices = order[start : start + batch]
        for name, values in predictor.predict(encoded.batch(indices)).items():
            if name not in outputs:
                outputs[name] = np.empty((len(order), *values.shape[1:]), values.dtype)
            outputs[name][indices] = values
    return outputs
