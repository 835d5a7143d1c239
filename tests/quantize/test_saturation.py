"""Which INT8 products exceed 16 bits where pairs of them are added in 16 bits."""

import numpy as np
import pytest

from compress.quantize.saturation import can_saturate, saturating_sums, unsaturated_scales


def sums_of_all_pairs(activations, weights):
    """The sums of neighbouring products, one by one."""
    rows, inputs = activations.shape
    for row in range(rows):
        for column in range(weights.shape[1]):
            for first in range(0, inputs, 2):
                pair = slice(first, first + 2)
                yield int(activations[row, pair].astype(int) @ weights[pair, column].astype(int))


@pytest.mark.parametrize("inputs", [1, 2, 7, 16])
def test_sums_are_exact(inputs):
    generator = np.random.default_rng(inputs)
    weights = generator.integers(-128, 128, (inputs, 5)).astype(np.int8)
    activations = generator.integers(200, 256, (9, inputs)).astype(np.uint8)
    expected = sum(not -(2**15) <= each < 2**15 for each in sums_of_all_pairs(activations, weights))
    assert saturating_sums(activations, weights) == expected
    assert (expected > 0) == (inputs > 1)


@pytest.mark.parametrize(
    ("pair", "possible"),
    [
        ([64, 64], False),
        ([64, 65], True),
        ([127, 1], False),
        ([127, 2], True),
        ([127, -128], False),
        ([-64, -64], False),
    ],
)
def test_the_bound_holds_for_all_activations(pair, possible):
    weights = np.array([pair], dtype=np.int8).T
    assert can_saturate(weights) == possible
    worst = np.where(np.sign(pair) == np.sign(sum(pair)), 255, 0).astype(np.uint8)[None]
    assert bool(saturating_sums(worst, weights)) == possible


@pytest.mark.parametrize("inputs", [1, 6, 33])
def test_scales_without_saturation(inputs):
    weights = np.random.default_rng(0).standard_normal((inputs, 64)).astype(np.float32)
    weights[:, 0] = 0.0
    scales = unsaturated_scales(weights)
    rounded = np.rint(weights / scales)
    assert np.abs(rounded).max() <= 127
    assert not can_saturate(rounded.astype(np.int8))
    # No scale is larger than it has to be: pairs use at least seven of the eight bits.
    assert (np.abs(rounded[:, 1:]).max(axis=0) >= 63).all()
