"""Which rows go to which role, and small samples with every class: functions of counts or labels, shares and a seed."""

import itertools
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from compress.recipe.field_types import Part, Role

RowMask = NDArray[np.bool_]

CERTAINTY = 3.0
"""Standard errors that a loss should be, so that the select rows show whether it was exceeded."""
LOSS = 0.01
"""The loss that the select rows should show: a point, as gates allow by default. A recipe's own gate does not decide
it: another gate would split the data anew, and train everything again on other rows."""
DISAGREEMENT = 0.1
"""Share of rows on which only one of two models is right, assumed before there are any."""
MOST_OF_A_SHARE = 1.5
"""How many times the rows that are asked for whole groups may have."""
LEAST_SHARE, MOST_SHARE = 0.05, 0.2
"""Limits of the share of train that is split off as select by default."""


def automatic_share(count: int, left: float = 1.0) -> float:
    """Return the share of ``count`` rows that select needs to show a loss of a point, ``left`` being not test's.

    A paired difference on n rows has a standard error of about sqrt(DISAGREEMENT / n).
    """
    needed = CERTAINTY**2 * DISAGREEMENT / LOSS**2
    return min(MOST_SHARE * left, max(LEAST_SHARE * left, needed / max(count, 1)))


def assign_roles(
    count: int,
    seed: int,
    shares: Mapping[Role, float],
    limit: int | None,
    rest: Role,
    labelled: int | None = None,
    rare: Mapping[int, Sequence[int]] | None = None,
    fits: RowMask | None = None,
    groups: NDArray[np.int64] | None = None,
) -> dict[Part, RowMask]:
    """Return a mask of ``count`` rows per role: first the ``shares`` split off, at least one row each, then ``rest``.

    The last row of a class is not split off, so that no class is scored without having been learnt. ``limit`` leaves at
    most that many rows in each role, taken from all over the file: the first rows of a file sorted by label would be of
    one class.

    Args:
        count: number of rows.
        seed: of the random order.
        shares: the share of all rows of each role that is split off.
        limit: rows of each role, at most.
        rest: the role of all other rows.
        labelled: of ``rest``, only the first so many of these rows that fit; the others are `unlabelled`.
        fits: which rows have a label that can be read; all unless given.
        rare: by row number, those of its classes that a split could use up; of rows that have such classes.
        groups: of each row, the number of the first one of its group: rows of a group are of one role. They may use up
            a class.

    Raises:
        TooFewGroups: a role would have none, or nothing would be left.
    """
    rare = rare or {}
    left = Counter(label for labels in rare.values() for label in labels)
    keys = random_keys(count, seed)
    order = np.argsort(keys if groups is None else keys[groups], kind="stable")
    parts: dict[Part, NDArray[np.int64]] = {}
    for role, share in shares.items():
        size = max(1, round(share * count))
        taken = _take(order, size, rare, left) if groups is None else _take_groups(order, size, groups)
        parts[role], order = order[taken], np.delete(order, taken)
    parts[rest] = order = order[:limit]
    if labelled is not None:
        usable = order if fits is None else order[fits[order]]
        parts[rest] = usable[:labelled]
        parts["unlabelled"] = order[~np.isin(order, parts[rest])]
    return {role: _mask(count, part[:limit]) for role, part in parts.items()}


class TooFewGroups(Exception):
    """Rows form too few groups to split some off."""


def _take_groups(order: NDArray[np.int64], size: int, groups: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the positions in ``order`` of whole groups that have about ``size`` rows; larger ones are left."""
    members = groups[order]
    starts = [0, *(np.flatnonzero(np.diff(members)) + 1).tolist(), len(order)]
    taken, total = list[NDArray[np.int64]](), 0
    for start, end in itertools.pairwise(starts):
        if total >= size:
            break
        if total + end - start <= MOST_OF_A_SHARE * size:
            taken.append(np.arange(start, end))
            total += end - start
    if not taken or total == len(order):
        raise TooFewGroups(f"rows form too few groups to split off {size:,} of {len(groups):,} rows")
    return np.concatenate(taken)


def _mask(count: int, rows: NDArray[np.int64]) -> RowMask:
    mask = np.zeros(count, np.bool_)
    mask[rows] = True
    return mask


def _take(
    order: NDArray[np.int64], size: int, rare: Mapping[int, Sequence[int]], left: Counter[int]
) -> NDArray[np.int64]:
    """Return the positions in ``order`` of the first ``size`` rows that leave a row of each class, counting down."""
    passed: list[int] = []
    for position in np.flatnonzero(np.isin(order, list(rare))).tolist():
        if position - len(passed) >= size:
            break
        labels = rare[int(order[position])]
        if all(left[label] > 1 for label in labels):
            left.subtract(labels)
        else:
            passed.append(position)
    return np.delete(np.arange(min(len(order), size + len(passed))), passed)


def random_keys(count: int, seed: int) -> NDArray[np.uint64]:
    """Return a pseudo-random number for each row, from the seed and the row's index alone (splitmix64's mixing)."""
    mixed = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= np.uint64(seed) << np.uint64(32) | np.uint64(seed)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 0x9E3779B97F4A7C15)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return mixed ^ (mixed >> np.uint64(31))


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
