"""Tags of words: how files mark entities, and which entities rows of tags hold. Pure.

A tag is `O`, or `B-` or `I-` with a type. Once read it is a number: 0 for O, then B and I of each type in turn, so that
type and beginning follow from the number alone. -1 stands behind the last word of a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

OUTSIDE, BEGINS, INSIDE = "O", "B-", "I-"
NOTHING = -1
"""The tag behind the last word of a row."""

Tags = NDArray[np.int16]
Counts = NDArray[np.int64]


def is_tag(name: str) -> bool:
    """Whether it is `O`, or `B-` or `I-` with a type."""
    return name == OUTSIDE or (name[:2] in (BEGINS, INSIDE) and len(name) > 2)


def tag_names(types: Iterable[str]) -> tuple[str, ...]:
    """All tags of these types, in the order of their numbers."""
    return (OUTSIDE, *(prefix + kind for kind in types for prefix in (BEGINS, INSIDE)))


def type_names(tags: Sequence[str]) -> tuple[str, ...]:
    """The types of `tag_names`."""
    return tuple(tag.removeprefix(BEGINS) for tag in tags[1::2])


def from_iob1(tags: Sequence[str]) -> list[str]:
    """BIO from IOB1, where B- only parts an entity from one of its type right before it."""
    before = (OUTSIDE, *tags)
    return [
        BEGINS + tag[2:] if tag.startswith(INSIDE) and previous[2:] != tag[2:] else tag
        for previous, tag in zip(before, tags, strict=False)
    ]


def types_of(tags: Tags) -> Tags:
    """The number of each tag's type; -1 outside of all entities and behind rows."""
    types: Tags = (tags + 1) // 2 - 1
    return types


class Entities(NamedTuple):
    """The entities of many rows, row by row and from left to right."""

    row: NDArray[np.intp]
    start: NDArray[np.intp]
    """Place of the first word."""
    end: NDArray[np.intp]
    """Place behind the last word."""
    type: NDArray[np.int64]


def entities(tags: Tags) -> Entities:
    """The entities in ``tags`` (rows, words), as seqeval's default and CoNLL's script find them.

    One begins at each B-, and at an I- that follows O or another type; it goes on while I- of its type follow.
    """
    types = types_of(tags)
    within = types >= 0
    edge = np.full((len(tags), 1), NOTHING, types.dtype)
    begins = within & ((tags % 2 == 1) | (types != np.hstack([edge, types[:, :-1]])))
    goes_on = np.hstack([(within & ~begins)[:, 1:], np.zeros((len(tags), 1), np.bool_)])
    row, start = np.nonzero(begins)
    end = np.nonzero(within & ~goes_on)[1] + 1
    return Entities(row, start, end, types[row, start].astype(np.int64))


def entity_counts(decided: Tags, true: Tags, types: int) -> tuple[Counts, Counts, Counts]:
    """Entities of each row and type that are found where they are, decided at all, and truly there: (rows, types)."""
    found, there = entities(decided), entities(true)
    rows, words = true.shape
    place, true_place = (np.ravel_multi_index(side, (rows, words, words + 1, types)) for side in (found, there))
    hits = np.isin(place, true_place)
    return (
        _counted(found.row[hits], found.type[hits], rows, types),
        _counted(found.row, found.type, rows, types),
        _counted(there.row, there.type, rows, types),
    )


def _counted(row: NDArray[np.intp], kind: Counts, rows: int, types: int) -> Counts:
    counts: Counts = np.bincount(row * types + kind, minlength=rows * types).reshape(rows, types)
    return counts
