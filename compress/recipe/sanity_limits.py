"""Upper limits of numbers that users give, far above anything that makes sense; what a key allows is in its schema."""

MAX_THREADS = 1_024
MAX_BATCH = 65_536
MAX_LENGTH = 65_536
"""Word pieces of one input."""
MAX_WIDTH = 65_536
MAX_LAYERS = 1_000
MAX_BUCKETS = 1_000_000
"""Vectors of n-grams; the products of the hash stay below 2^31, in which phones compute."""
