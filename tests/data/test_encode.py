"""Encoded rows and the order of batches."""

import gc

import numpy as np
import pytest

from compress.data.encode import batches_by_length, bucketed_batches, encode_rows, training_examples
from compress.data.tokenizer import TextTokenizer
from compress.errors import DataError
from compress.model_folder.model_info import TaskInfo
from compress.tasks import KINDS

TEXTS = ["a", "a b c d e", "b c", "d d d d", "e"]


def info(kind, labels=()):
    return TaskInfo(name="t", kind=kind, text=("text",), labels=labels, metric="m", max_length=6)


def rows(labels):
    return [{"text": text, "text_pair": None, "label": label} for text, label in zip(TEXTS, labels, strict=True)]


CASES = {
    "classification": ([0, 1, 0, 1, 1], ("x", "y")),
    "multi_label": ([[0.0, 1.0], [1.0, 1.0], [0.0, 0.0], [1.0, 0.0], [0.0, 1.0]], ("x", "y")),
    "regression": ([0.5, 1.0, 2.25, -3.0, 0.0], ()),
}


@pytest.mark.parametrize("kind", CASES)
def test_batches_equal_those_made_in_memory(kind, word_folder):
    answers, labels = CASES[kind]
    tokens, task = TextTokenizer.load(word_folder), info(kind, labels)
    encoded = encode_rows(rows(answers), task, tokens)
    made = [example for row in rows(answers) for example in KINDS[kind].examples(row, task, tokens)]
    for picked in ([0, 1, 2, 3, 4], [3], [4, 0]):
        expected = KINDS[kind].collate([made[index] for index in picked], tokens.pad_id)
        result = encoded.batch(np.array(picked))
        assert result.pop("index").tolist() == picked
        assert expected.keys() == result.keys()
        for name, array in expected.items():
            np.testing.assert_array_equal(result[name], array)
            assert result[name].dtype == array.dtype


def test_lengths_counts_and_truncation(word_folder):
    encoded = encode_rows(rows([0] * 5), info("classification"), TextTokenizer.load(word_folder))
    assert len(encoded) == 5
    assert encoded.lengths.tolist() == [3, 6, 4, 6, 3]
    assert encoded.counts.tolist() == [1] * 5
    assert encoded.truncated == pytest.approx(1 / 5)


def test_rows_without_labels(word_folder):
    bare = [{"text": "a b", "text_pair": None}]
    encoded = encode_rows(bare, info("classification"), TextTokenizer.load(word_folder))
    assert "labels" not in encoded.batch([0])


def test_no_rows(word_folder):
    with pytest.raises(DataError, match="no rows"):
        encode_rows([], info("classification"), TextTokenizer.load(word_folder))


def test_temporary_files_go_with_the_object(word_folder, tmp_path, monkeypatch):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    task, tokens = info("classification"), TextTokenizer.load(word_folder)
    encoded = encode_rows(rows([0] * 5), task, tokens)
    assert list(temporary.iterdir())
    del encoded
    gc.collect()
    assert not list(temporary.iterdir())
    with pytest.raises(DataError):
        encode_rows([], task, tokens)
    assert not list(temporary.iterdir())


def test_values_outlive_the_write_buffer(word_folder, monkeypatch):
    monkeypatch.setattr("compress.storage.mapped_arrays.BUFFERED", 4)
    encoded = encode_rows(rows([0, 1, 0, 1, 1]), info("classification"), TextTokenizer.load(word_folder))
    assert encoded.batch([1, 4])["input_ids"].tolist() == [[2, 4, 5, 6, 7, 3], [2, 8, 3, 0, 0, 0]]
    assert encoded.batch([1, 2])["labels"].tolist() == [1, 0]


@pytest.mark.parametrize("count", [1, 7, 64, 1000, 4097])
def test_every_example_once_an_epoch(count):
    lengths = np.random.default_rng(0).integers(3, 128, count)
    batches = bucketed_batches(lengths, 16, seed=1, epoch=2)
    assert sorted(np.concatenate(batches).tolist()) == list(range(count))
    assert sum(len(batch) != 16 for batch in batches) <= 1
    scored = batches_by_length(lengths, 16)
    assert sorted(np.concatenate(scored).tolist()) == list(range(count))
    assert np.all(np.diff(lengths[np.concatenate(scored)]) >= 0)


def test_order_is_a_pure_function_of_seed_and_epoch():
    lengths = np.random.default_rng(0).integers(3, 128, 500)
    orders = {
        (seed, epoch): np.concatenate(bucketed_batches(lengths, 16, seed, epoch)).tolist()
        for seed in (0, 1)
        for epoch in (0, 1)
    }
    assert np.concatenate(bucketed_batches(lengths, 16, 0, 0)).tolist() == orders[0, 0]
    assert len({tuple(order) for order in orders.values()}) == 4


def test_batches_hold_similar_lengths():
    lengths = np.random.default_rng(0).integers(3, 128, 4096)
    spread = np.mean([np.ptp(lengths[batch]) for batch in bucketed_batches(lengths, 16, 0, 0)])
    assert spread < 5


def test_nothing_gives_no_batches():
    assert bucketed_batches(np.zeros(0, np.int64), 16, 0, 0) == []
    assert batches_by_length(np.zeros(0, np.int64), 16) == []


def test_grouped_rows_have_all_their_examples_in_one_batch(word_folder):
    task = info("classification").model_copy(update={"long": "mean", "max_length": 4, "max_windows": 2})
    encoded = encode_rows(rows([0, 1, 0, 1, 1]), task, TextTokenizer.load(word_folder))
    assert encoded.counts.tolist() == [1, 2, 1, 2, 1]
    assert encoded.truncated == pytest.approx(1 / 5)  # only the text of five words does not fit into two windows
    together = training_examples(encoded, task)
    assert together.lengths.tolist() == [3, 4, 4, 4, 3]  # of the longest example, to which the others are padded
    assert together.example_lengths.tolist() == encoded.lengths.tolist()  # counted as `index` does
    assert together.cacheable == len(encoded) == 7
    batch = together.batch([3, 0])
    assert batch["group"].tolist() == [0, 0, 1]
    assert batch["input_ids"].tolist() == [[2, 7, 7, 3], [2, 7, 7, 3], [2, 4, 3, 0]]
    assert batch["labels"].tolist() == [1, 1, 0]
    assert training_examples(encoded, info("classification")) is encoded


def test_pieces_as_the_teacher_numbers_them(word_folder):
    encoded = encode_rows(rows([0, 1, 0, 1, 1]), info("classification"), TextTokenizer.load(word_folder))
    digest = encoded.digest()
    assert "teacher_ids" not in encoded.batch([0]).keys() | encoded.arrays().keys()
    encoded.teacher_ids = np.arange(9) * 10 + 5
    batch = training_examples(encoded, info("classification")).batch([1, 0])
    assert batch["teacher_ids"].tolist() == [[25, 45, 55, 65, 75, 35], [25, 45, 35, 5, 5, 5]]
    assert batch["teacher_ids"].dtype == batch["input_ids"].dtype
    assert (encoded.arrays()["teacher_ids"].per, encoded.arrays()["teacher_ids"].fill) == ("token", 5)
    assert encoded.digest() != digest
