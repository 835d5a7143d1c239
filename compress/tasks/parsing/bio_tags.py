"""Tags of words: how files mark entities, and which entities rows of tags hold. Pure.

A tag is `O`, or `B-` or `I-` with a type. In canonical rows it is a number: 0 for O, then B and I of each type in turn,
so that type and beginning follow from the number alone. -1 pads rows after their last word.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

OUTSIDE, BEGIN, INSIDE = "O", "B-", "I-"
PAD_TAG = -1
"""Pads rows after their last word."""

Tags = NDArray[np.int16]
Counts = NDArray[np.int64]


def is_tag(name: str) -> bool:
    """Return whether it is `O`, or `B-` or `I-` with a type."""
    return name == OUTSIDE or (name[:2] in (BEGIN, INSIDE) and len(name) > 2)


def tag_names(types: Iterable[str]) -> tuple[str, ...]:
    """Return all tags of these types, in the order of their numbers."""
    return (OUTSIDE, *(prefix + kind for kind in types for prefix in (BEGIN, INSIDE)))


def type_names(tags: Sequence[str]) -> tuple[str, ...]:
    """Return the types of `tag_names`."""
    return tuple(tag.removeprefix(BEGIN) for tag in tags[1::2])


def from_iob1(tags: Sequence[str]) -> list[str]:
    """Return BIO from IOB1, where B- only separates an entity from one of its type right before it."""
    return [
        BEGIN + tag[2:] if tag.startswith(INSIDE) and previous[2:] != tag[2:] else tag
        for previous, tag in zip((OUTSIDE, *tags), tags, strict=False)
    ]


class Entities(NamedTuple):
    """The entities of many rows, row by row and from left to right."""

    row: NDArray[np.intp]
    start: NDArray[np.intp]
    """Index of the first word."""
    end: NDArray[np.intp]
    """Index after the last word."""
    type: NDArray[np.int64]


def entities(tags: Tags) -> Entities:
    """Return the entities in ``tags`` (rows, words), as seqeval's default and CoNLL's script count them.

    One begins at each B-, and at an I- that follows O or another type; it continues while I- of its type follow.
    """
    types = (tags + 1) // 2 - 1  # -1 outside of entities and after rows
    within = types >= 0
    edge = np.full((len(tags), 1), PAD_TAG, types.dtype)
    begins = within & ((tags % 2 == 1) | (types != np.hstack([edge, types[:, :-1]])))
    continues = np.hstack([(within & ~begins)[:, 1:], np.zeros((len(tags), 1), np.bool_)])
    row, start = np.nonzero(begins)
    end = np.nonzero(within & ~continues)[1] + 1
    return Entities(row, start, end, types[row, start].astype(np.int64))


def entity_counts(predicted: Tags, true: Tags, types: int) -> tuple[Counts, Counts, Counts]:
    """Return per row and type the entities that are predicted correctly, predicted, and true: each (rows, types)."""
    ours, theirs = entities(predicted), entities(true)
    rows, words = true.shape
    key, true_key = (np.ravel_multi_index(side, (rows, words, words + 1, types)) for side in (ours, theirs))
    hits = np.isin(key, true_key)
    parts = (ours.row[hits], ours.type[hits]), (ours.row, ours.type), (theirs.row, theirs.type)
    correct, predicted_all, true_all = (_count_by_type(row, kind, rows, types) for row, kind in parts)
    return correct, predicted_all, true_all


def _count_by_type(row: NDArray[np.intp], kind: Counts, rows: int, types: int) -> Counts:
    return np.bincount(row * types + kind, minlength=rows * types).reshape(rows, types)
