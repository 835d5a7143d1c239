"""Which rows go to which role: pure functions of the number of rows, a seed and the shares."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from compress.recipe.field_types import Role

RowMask = NDArray[np.bool_]


def assign_roles(
    count: int, seed: int, shares: Mapping[Role, float], limit: int | None, rest: Role, labelled: int | None = None
) -> dict[Role, RowMask]:
    """Return a mask of ``count`` rows per role: first the ``shares`` split off, at least one row each, then ``rest``.

    ``limit`` leaves at most that many rows in each role, taken from all over the file: the first rows of a file sorted
    by label would be of one class. Of ``rest`` only the first ``labelled`` of these rows remain.
    """
    order = np.argsort(random_keys(count, seed), kind="stable")
    sizes = [max(1, round(share * count)) for share in shares.values()]
    parts = [part[:limit] for part in np.split(order, np.cumsum(sizes))]
    parts[-1] = parts[-1][:labelled]
    return {role: np.isin(np.arange(count), part) for role, part in zip((*shares, rest), parts, strict=True)}


def random_keys(count: int, seed: int) -> NDArray[np.uint64]:
    """Return a pseudo-random number for each row, from the seed and the row's index alone (splitmix64's mixing)."""
    mixed = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= np.uint64(seed) << np.uint64(32) | np.uint64(seed)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 0x9E3779B97F4A7C15)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return mixed ^ (mixed >> np.uint64(31))
