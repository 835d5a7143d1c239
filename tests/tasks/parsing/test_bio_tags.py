"""Entities from tags, against a slow reference that follows the documented rules one word at a time."""

import numpy as np
import pytest

from compress.errors import DataError
from compress.recipe.task_schema import Task
from compress.tasks import KINDS
from compress.tasks.parsing.bio_tags import entities, entity_counts, from_iob1, is_tag, tag_names, type_names
from compress.tasks.validate_task import task_problems

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


KIND = KINDS["token_classification"]
WHERE = "train.jsonl, row 17 (line 18)"
LABELS = ("O", "B-city", "I-city", "B-day", "I-day")


def task_of(**more):
    columns = {"text": ("tokens",), "label": "tags"}
    return Task(**{"kind": "token_classification", "data": {"train": "a.jsonl", "test": "b.jsonl"}, **columns, **more})


def read(words, tags, task_labels=None, **more):
    return KIND.read_row({"tokens": words, "tags": tags}, task_of(labels=task_labels, **more), LABELS, WHERE)


def labels_of(*rows, **more):
    return KIND.labels(iter(rows), task_of(**more))


ROW = {"words": ["to", "New", "York"], "label": [0, 1, 2]}


@pytest.mark.parametrize("words", [["to", "New", "York"], "to New  York ", '["to", "New", "York"]'])
@pytest.mark.parametrize("tags", [["O", "B-city", "I-city"], "O B-city I-city", '["O", "B-city", "I-city"]'])
def test_lists_texts_and_lists_in_cells(words, tags):
    assert read(words, tags) == ROW


@pytest.mark.parametrize("words", ["[ 1 ]", "[ New York", '[ "a", "b"'])
def test_a_sentence_may_begin_with_a_bracket(words):
    assert read(words, "O O O")["words"] == words.split()


@pytest.mark.parametrize("tags", [[0, 1, 2], ["0", "1", "2"], "0 1 2", "[0, 1, 2]"])
def test_numbers_are_indices_into_the_labels_of_the_recipe(tags):
    task = task_of(labels=("O", "I-city", "B-city"))
    labels = KIND.labels(iter(()), task)
    row = KIND.read_row({"tokens": "to New York", "tags": tags}, task, labels, WHERE)
    assert [labels[tag] for tag in row["label"]] == ["O", "I-city", "B-city"]


@pytest.mark.parametrize("number", [3, -1, True])
def test_numbers_that_are_no_indices(number):
    with pytest.raises(DataError, match=r"row 17.*is neither O nor"):
        read("a", [number], task_labels=("O", "B-city"))


def test_counting_from_one():
    task = task_of(labels=("O", "B-city"), first_label=1)
    assert KIND.read_row({"tokens": "a b", "tags": "1 2"}, task, LABELS, WHERE)["label"] == [0, 1]


@pytest.mark.parametrize(
    ("words", "tags", "message"),
    [
        ("a b", "O", r"2 words and 1 tag\."),
        (["a", "b"], ["O"] * 3, r"2 words and 3 tags"),
        ([], [], r"the sentence has no words"),
        ("", "", r"the sentence has no words"),
        ("[]", "[]", r"the sentence has no words"),
        (None, "O", r"the list of words is empty"),
        (3, "O", r"the list of words is 3 where"),
        (["a", 3], "O O", r"word 2 is 3 where"),
        (["a", "New York"], "O O", r"word 2 is 'New York' where a text without white space"),
        (["a", ""], "O O", r"word 2 is empty"),
        (["a\ud800"], "O", r"half a character"),
        ("a", None, r"the list of tags is empty"),
        ("a", ["X"], r"the tag 'X' is neither O nor B- or I-"),
        ("a", [None], r"the tag 'None' is neither"),
        ("a b", "O S-city", r"the tag 'S-city' is neither"),
        ("a b", [0, 1], r"the tag '0' is neither"),
        ("a", "B-ctiy", r"the tag 'B-ctiy' is not among those of train; did you mean B-city"),
    ],
)
def test_what_does_not_fit_names_the_row(words, tags, message):
    with pytest.raises(DataError, match=message) as fault:
        read(words, tags)
    assert str(fault.value).startswith(WHERE)


def test_numbers_hint_at_labels_and_other_schemes_at_how_to_write_them():
    with pytest.raises(DataError) as fault:
        read("a", [0])
    assert "task.labels" in fault.value.hint
    with pytest.raises(DataError) as fault:
        read("a", ["E-city"])
    assert "E-" in fault.value.hint


def test_labels_are_pairs_by_type():
    assert labels_of("O B-day", ["I-day", "B-city"], '["I-area"]') == (
        "O",
        *("B-area", "I-area", "B-city", "I-city", "B-day", "I-day"),
    )
    assert labels_of(labels=("B-x", "O")) == ("O", "B-x", "I-x")


def test_all_outside_is_nothing_to_learn():
    with pytest.raises(DataError, match="nothing to learn"):
        labels_of("O O", ["O"])


def test_no_beginning_at_all_hints_at_iob1():
    with pytest.raises(DataError, match="begins with B-") as fault:
        labels_of("O I-city", "I-day")
    assert "scheme: iob1" in fault.value.hint
    assert labels_of("O I-city", scheme="iob1") == ("O", "B-city", "I-city")


def test_wrong_tags_of_train_wait_for_the_row_that_has_them():
    assert labels_of([3, None], 5, None) == ("O",)
    assert labels_of(["X"], "B-city") == ("O", "B-city", "I-city")


def test_iob1_is_read_as_bio():
    assert read("a b c d", "I-city I-city B-city I-day", scheme="iob1")["label"] == [1, 2, 1, 3]
    assert read("a b c d", "I-city I-city B-city I-day")["label"] == [2, 2, 1, 4]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"labels": ("O", "city")}, "'city' is no tag"),
        ({"labels": ("O",)}, "names no entity type"),
        ({"text": ("a", "b")}, "reads 1 columns of text, got 2"),
        ({"label": ("a", "b")}, "1 label column"),
        ({"long": "mean"}, "has no effect for token_classification"),
    ],
)
def test_contradictory_settings_are_refused(settings, message):
    import re

    result = [str(problem) for problem in task_problems(task_of(**settings))]
    assert any(re.search(message, line) for line in result), result


def test_a_sound_task_has_no_problems():
    assert task_problems(task_of(labels=("O", "B-x"), scheme="iob1", overlap=8, max_windows=2)) == []
