"""Whether INT8 products can exceed 16 bits on a CPU that adds neighbouring products in 16 bits.

x86 processors without VNNI multiply unsigned 8-bit activations with signed 8-bit weights and add each two products of
neighbouring inputs in 16 bits; a larger sum is cut off at 32,767, and the answer is wrong. Whether that can happen
follows from the weights alone (`can_saturate`), whether it does for given activations from exact sums
(`saturating_sums`): neither depends on the machine that computes it.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

LARGEST_ACTIVATION = 255
HIGHEST, LOWEST = 2**15 - 1, -(2**15)
"""The range of a sum of 16 bits."""
LARGEST_PAIR = HIGHEST // LARGEST_ACTIVATION
"""Two neighbouring weights of the same sign whose absolute values sum up to this (128) cannot saturate."""

Weights = NDArray[np.int8]
"""(inputs, columns)."""


def unsaturated_scales(weights: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return for each column of weights (inputs, columns) the smallest symmetric scale with which nothing saturates.

    Rounding adds at most one half to each weight of a pair, so the sums of pairs before are at most one less than
    `LARGEST_PAIR`.
    """
    positive, negative = _pairs(np.maximum(weights, 0.0)), _pairs(np.maximum(-weights, 0.0))
    largest = np.maximum(positive, negative).max(axis=0)
    scales: NDArray[np.float32] = np.where(largest > 0.0, largest / (LARGEST_PAIR - 1), 1.0).astype(np.float32)
    return scales


def can_saturate(weights: Weights) -> bool:
    """Whether some activations would make a sum of two neighbouring products exceed 16 bits."""
    return bool(_unsafe_pairs(weights).any())


def saturating_sums(activations: NDArray[np.uint8], weights: Weights) -> int:
    """Count the sums of two neighbouring products that exceed 16 bits for activations (rows, inputs), exactly."""
    left, right = _even(activations.T.astype(np.int32)), _even(weights.astype(np.int32))
    count = 0
    for pair, column in np.argwhere(_unsafe_pairs(weights)):
        first, second = 2 * pair, 2 * pair + 1
        sums = left[first] * right[first, column] + left[second] * right[second, column]
        count += int(((sums > HIGHEST) | (sums < LOWEST)).sum())
    return count


def _unsafe_pairs(weights: Weights) -> NDArray[np.bool_]:
    """Whether the worst activations saturate each pair of inputs (pairs, columns)."""
    wide = weights.astype(np.int32)
    highest = LARGEST_ACTIVATION * _pairs(np.maximum(wide, 0))
    lowest = LARGEST_ACTIVATION * _pairs(np.minimum(wide, 0))
    unsafe: NDArray[np.bool_] = (highest > HIGHEST) | (lowest < LOWEST)
    return unsafe


def _pairs(values: NDArray[Any]) -> NDArray[Any]:
    """Return the sums of neighbouring rows (0 and 1, 2 and 3, …)."""
    even = _even(values)
    sums: NDArray[Any] = even[0::2] + even[1::2]
    return sums


def _even(values: NDArray[Any]) -> NDArray[Any]:
    """Return ``values`` with a row of zeros more where their number is odd."""
    return np.pad(values, ((0, len(values) % 2), (0, 0)))
