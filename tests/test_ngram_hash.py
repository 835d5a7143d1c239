import numpy as np
import pytest

from compress.ngram_hash import LARGEST_PRODUCT, multipliers, primes
from compress.recipe.sanity_limits import MAX_BUCKETS


def test_moduli_are_the_largest_primes():
    assert primes(20_000) == (19997, 19993, 19991)
    assert primes(2) == (2, 2, 2)


@pytest.mark.parametrize("buckets", [2, 100, 46_341, MAX_BUCKETS])
def test_no_product_exceeds_32_bits(buckets):
    for factors in multipliers(5, buckets):
        assert all(
            0 < factor * (prime - 1) <= LARGEST_PRODUCT for factor, prime in zip(factors, primes(buckets), strict=True)
        )


def test_hashes_of_bigrams_are_spread_and_differ_from_each_other():
    moduli = np.array(primes(1000))
    first, second = (np.array(each) for each in multipliers(2, 1000))
    pairs = np.random.default_rng(0).integers(0, 30_000, (5000, 2))
    hashes = (pairs[:, :1] * first % moduli + pairs[:, 1:] * second % moduli) % moduli
    for column in hashes.T:
        assert np.bincount(column, minlength=1000).max() < 25
    assert (hashes[:, 0] == hashes[:, 1]).mean() < 0.01
