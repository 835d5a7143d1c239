"""Runs a padded batch row by row, for files that read one row at a time; each row runs without its padding.

So a row's outputs do not depend on what shares its batch, and short rows do not pay for long ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compress.errors import ModelError
from compress.runtime.predictor import check_inputs
from compress.tasks.base import Arrays

PER_TOKEN = ("start_logits", "end_logits", "last_hidden_state")
"""Outputs with a value per token in any model. Logits have one if they have three axes."""


def is_per_token(name: str, values: NDArray[np.float32]) -> bool:
    """Whether an output has a value per token, and so values at padding."""
    return name in PER_TOKEN or (name == "logits" and values.ndim == 3)


def run_rows(
    inputs: tuple[str, ...],
    arrays: Mapping[str, NDArray[Any]],
    padded_length: Callable[[int], int],
    run: Callable[[Arrays], Arrays],
) -> Arrays:
    """Return the outputs of a padded batch; those of padding are 0.

    Args:
        inputs: names of the arrays that the model takes.
        arrays: of the batch, each (rows, tokens).
        padded_length: from a row's number of tokens to the length that the model reads it with.
        run: from the arrays of one row (1, length) to its outputs.
    """
    check_inputs(inputs, arrays)
    given = {name: np.asarray(arrays[name]) for name in inputs}
    shapes = {array.shape for array in given.values()}
    if len(shapes) != 1 or any(len(shape) != 2 or 0 in shape for shape in shapes):
        shown = ", ".join(f"{name} {array.shape}" for name, array in given.items())
        raise ModelError(f"the model takes arrays of (rows, tokens), all of one shape and not empty; got {shown}.")
    ((rows, width),) = shapes
    ends = _ends(given.get("attention_mask", np.ones((rows, width))))
    results = []
    for index, end in enumerate(ends):
        padding = ((0, 0), (0, padded_length(end) - end))
        results.append(run({name: np.pad(array[index : index + 1, :end], padding) for name, array in given.items()}))
    return {name: np.concatenate([_as_wide(name, each[name], width) for each in results]) for name in results[0]}


def _ends(mask: NDArray[Any]) -> list[int]:
    """Return for each row the position after its last token that is not padding; 1 for rows of padding alone."""
    positions = np.arange(1, mask.shape[1] + 1)
    return [int(end) for end in np.maximum(1, (positions * (mask != 0)).max(axis=1))]


def _as_wide(name: str, values: NDArray[np.float32], width: int) -> NDArray[np.float32]:
    """Return a row's output with as many tokens as the batch where it has a value per token."""
    if not is_per_token(name, values):
        return values
    wide = np.zeros((1, width, *values.shape[2:]), np.float32)
    tokens = min(width, values.shape[1])
    wide[:, :tokens] = values[:, :tokens]
    return wide
