"""Entities from tags, against a slow reference that follows the documented rules one word at a time."""

import numpy as np
import pytest

from compress.tasks.parsing.bio_tags import entities, entity_counts, from_iob1, is_tag, tag_names, type_names

TYPES = ("LOC", "ORG", "PER")
NAMES = tag_names(TYPES)


def numbered(*rows):
    """Rows of tags as they are kept: `numbered("B-PER I-PER O")`."""
    split = [row.split() for row in rows]
    result = np.full((len(rows), max(map(len, split))), -1, np.int16)
    for line, tags in zip(result, split, strict=True):
        line[: len(tags)] = [NAMES.index(tag) for tag in tags]
    return result


def found_in(tags):
    return [(row, start, end, TYPES[kind]) for row, start, end, kind in zip(*entities(tags), strict=True)]


def slow_entities(tags):
    """A chunk ends before a B, an O or another type, and begins at a B, or at an I that goes on with no chunk."""
    chunks, start, kind = [], 0, None
    for index, tag in enumerate([*tags, "O"]):
        prefix, _, of = tag.partition("-")
        if kind is not None and (prefix in "BO" or of != kind):
            chunks.append((start, index, kind))
            kind = None
        if prefix == "B" or (prefix == "I" and kind is None):
            start, kind = index, of
    return chunks


def test_tag_names_and_type_names_are_inverse():
    assert NAMES == ("O", "B-LOC", "I-LOC", "B-ORG", "I-ORG", "B-PER", "I-PER")
    assert type_names(NAMES) == TYPES
    assert type_names(tag_names(["B-B", "-"])) == ("B-B", "-")


@pytest.mark.parametrize(("tag", "sound"), [("O", True), ("B-x", True), ("I-a-b", True), ("B-", False), ("x", False)])
def test_what_a_tag_is(tag, sound):
    assert is_tag(tag) is sound


@pytest.mark.parametrize("tag", ["", "o", "OO", "S-PER", "E-PER", "I", "B", "b-PER", "BPER"])
def test_what_no_tag_is(tag):
    assert not is_tag(tag)


@pytest.mark.parametrize(
    ("tags", "entities"),
    [
        ("B-PER I-PER O B-LOC", [(0, 2, "PER"), (3, 4, "LOC")]),
        ("B-PER B-PER", [(0, 1, "PER"), (1, 2, "PER")]),
        # Where files break the scheme, the lenient reading holds: an I- that follows O or another type begins.
        ("I-PER I-PER O", [(0, 2, "PER")]),
        ("O I-LOC", [(1, 2, "LOC")]),
        ("B-PER I-LOC I-LOC", [(0, 1, "PER"), (1, 3, "LOC")]),
        ("I-PER B-PER I-PER", [(0, 1, "PER"), (1, 3, "PER")]),
        ("O O", []),
    ],
)
def test_entities_of_one_row(tags, entities):
    assert found_in(numbered(tags)) == [(0, *entity) for entity in entities]


def test_an_entity_ends_where_its_row_does():
    rows = numbered("O B-PER I-PER", "I-PER", "O O O I-PER")
    assert found_in(rows) == [(0, 1, 3, "PER"), (1, 0, 1, "PER"), (2, 3, 4, "PER")]


@pytest.mark.parametrize("seed", range(20))
def test_random_rows_agree_with_the_slow_reference(seed):
    random = np.random.default_rng(seed)
    rows = [[NAMES[tag] for tag in random.integers(0, len(NAMES), random.integers(1, 12))] for _ in range(30)]
    expected = [(row, *entity) for row, tags in enumerate(rows) for entity in slow_entities(tags)]
    assert found_in(numbered(*map(" ".join, rows))) == expected


@pytest.mark.parametrize("seed", range(10))
def test_counts_agree_with_sets_of_entities(seed):
    random = np.random.default_rng(seed)
    gold = random.integers(0, len(NAMES), (25, 8)).astype(np.int16)
    lengths = random.integers(1, 9, 25)
    decided = np.where(random.random(gold.shape) < 0.4, random.integers(0, len(NAMES), gold.shape), gold)
    for rows in (gold, decided):
        rows[np.arange(8) >= lengths[:, None]] = -1
    counts = entity_counts(decided.astype(np.int16), gold, len(TYPES))
    for row in range(25):
        ours, true = (set(slow_entities([NAMES[tag] for tag in side[row] if tag >= 0])) for side in (decided, gold))
        for kind, name in enumerate(TYPES):
            expected = [sum(entity[2] == name for entity in some) for some in (ours & true, ours, true)]
            assert [counted[row, kind] for counted in counts] == expected


@pytest.mark.parametrize(
    ("iob1", "bio"),
    [
        ("I-PER I-PER O I-LOC", "B-PER I-PER O B-LOC"),
        ("I-PER B-PER I-PER", "B-PER B-PER I-PER"),
        ("I-PER I-LOC I-LOC", "B-PER B-LOC I-LOC"),
        ("O O", "O O"),
    ],
)
def test_iob1_becomes_bio(iob1, bio):
    assert from_iob1(iob1.split()) == bio.split()
