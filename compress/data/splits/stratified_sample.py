"""Draw a small sample of rows in which every class has its share."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray


def stratified_sample(labels: Sequence[Hashable], count: int, seed: int) -> NDArray[np.int64]:
    """Return the indices of ``count`` rows, ascending, drawn without replacement.

    Each class gets its share of the sample by largest remainder, and at least one row where ``count`` allows it. The
    result depends on the arguments alone.

    Args:
        labels: the class of each row; where rows have no class, the same value for all of them. For several classes a
            row, a tuple of them.
        count: rows to draw; with fewer rows than that, all are returned.
        seed: of the draw.
    """
    classes: dict[Hashable, list[int]] = {}
    for index, label in enumerate(labels):
        classes.setdefault(label, []).append(index)
    random = np.random.default_rng(seed)
    members = [random.permutation(rows) for rows in classes.values()]
    sizes = _allocate([len(rows) for rows in members], min(count, len(labels)))
    drawn = [rows[:size] for rows, size in zip(members, sizes, strict=True)]
    return np.sort(np.concatenate(drawn)).astype(np.int64) if drawn else np.zeros(0, np.int64)


def _allocate(sizes: Sequence[int], count: int) -> list[int]:
    """Rows to draw from each class: one each while they last (the largest classes first), then in proportion."""
    total = sum(sizes)
    by_size = sorted(range(len(sizes)), key=lambda index: -sizes[index])
    allocated = [0] * len(sizes)
    for index in by_size[:count]:
        allocated[index] = 1
    missing = [count * size / total - given for size, given in zip(sizes, allocated, strict=True)]
    for _ in range(count - sum(allocated)):
        index = max(by_size, key=lambda index: missing[index] if allocated[index] < sizes[index] else -np.inf)
        allocated[index] += 1
        missing[index] -= 1.0
    return allocated
