"""How n-grams of word pieces are hashed: by numbers that follow from their length and from the number of buckets.

Each of three linear hashes modulo a prime of its own maps two different n-grams to one value with a chance of one in
that prime (Carter and Wegman, "Universal Classes of Hash Functions", 1979). No product exceeds 2^31, since some
runtimes compute integers in 32 bits.
"""

import itertools
import random
from collections.abc import Iterator
from functools import cache

HASHES = 3
"""Of an n-gram: two vectors of the pool, and the weights of both."""
LARGEST_PRODUCT = 2**31 - 1


@cache
def primes(buckets: int) -> tuple[int, ...]:
    """Return the modulus of each hash: the largest primes up to the number of buckets."""
    return tuple(itertools.islice(_primes_below(buckets), HASHES))


@cache
def multipliers(longest: int, buckets: int) -> tuple[tuple[int, ...], ...]:
    """Return by how much each hash multiplies the last piece of an n-gram, the one before it, and so on."""
    draws = random.Random(0)  # the same in every model
    limits = [max(2, min(prime, LARGEST_PRODUCT // prime)) for prime in primes(buckets)]
    return tuple(tuple(draws.randrange(1, limit) for limit in limits) for _ in range(longest))


def _primes_below(number: int) -> Iterator[int]:
    """Yield the primes up to ``number`` from the largest down, and then 2."""
    for candidate in range(number, 1, -1):
        if all(candidate % divisor for divisor in range(2, int(candidate**0.5) + 1)):
            yield candidate
    yield from itertools.repeat(2)
