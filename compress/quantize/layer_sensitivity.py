"""How much each layer adds to the error of a quantized model: it alone is quantized, and all others stay in fp32.

The analysis is that of Wu and others, "Integer Quantization for Deep Learning Inference", 2020 (arXiv:2004.09602), with
the error of the outputs instead of the score: it needs no labels, and few rows are enough to put layers in order.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np

from compress.tasks.base import Arrays

MOST_FP32 = 0.5
"""Share of the layers that may return to fp32; a file with more of them is a slow fp32 file."""

Result = TypeVar("Result")


def layer_sensitivities(
    layers: Iterable[str], reference: Sequence[Arrays], outputs_of: Callable[[str], Sequence[Arrays] | None]
) -> dict[str, float]:
    """Return by layer the mean squared difference of the outputs from those in fp32.

    Args:
        layers: all that can be quantized.
        reference: the outputs of each row in fp32.
        outputs_of: returns those of a model in which only this layer is quantized; None where it is broken.
    """
    return {layer: mean_squared_difference(reference, outputs_of(layer)) for layer in layers}


def mean_squared_difference(expected: Sequence[Arrays], got: Sequence[Arrays] | None) -> float:
    """Return the mean over rows and outputs; infinite for a broken model, and where an output is not a number."""
    if got is None:
        return math.inf
    errors = [
        float(np.mean((ours[name] - theirs[name]) ** 2))
        for ours, theirs in zip(expected, got, strict=True)
        for name in ours
    ]
    mean = float(np.mean(errors))
    return mean if math.isfinite(mean) else math.inf


def worst_first(sensitivities: Mapping[str, float]) -> list[str]:
    """Return the layers in the order in which they return to fp32, up to `MOST_FP32` of them."""
    ordered = sorted(sensitivities, key=lambda layer: -sensitivities[layer])
    return ordered[: max(1, int(MOST_FP32 * len(ordered)))]


def growing_counts(most: int) -> Iterator[int]:
    """Yield how many layers to try in fp32: 1, 2, 3, 4, 6, 9, 13 … and at last ``most``.

    Each attempt builds and scores a file, so that many layers are not tried one by one.
    """
    count = 1
    while count < most:
        yield count
        count += max(1, count // 2)
    yield most


def first_passing(
    ordered: Sequence[str], attempt: Callable[[Sequence[str]], Result], passes: Callable[[Result], bool]
) -> tuple[list[str], Result | None, int]:
    """Return the fewest tried layers to fp32 with which a file passes, its result, and how many files were tried.

    Without one that passes there are no layers, and the result is None.
    """
    tried = 0
    for tried, count in enumerate(growing_counts(len(ordered)), start=1):
        result = attempt(ordered[:count])
        if passes(result):
            return list(ordered[:count]), result, tried
    return [], None, tried
