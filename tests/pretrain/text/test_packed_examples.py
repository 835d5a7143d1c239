"""Batches put special pieces around the packed sentences, and say which pieces may be masked."""

from __future__ import annotations

import numpy as np
import pytest

from compress.pretrain.text.corpus_pieces import Corpus
from compress.pretrain.text.packed_examples import PackedExamples, SpecialPieces
from compress.train.core.device_batches import DeviceBatches

SPECIAL = SpecialPieces(pad=0, cls=2, sep=3, mask=4, others=(0, 2, 3, 4))


@pytest.fixture(params=[(32, True), (48, True), (48, False)], ids=["runs", "pairs", "no types"])
def examples(request, corpus_folder, packed_folder):
    length, types = request.param
    return PackedExamples(corpus_folder, packed_folder, "train", length, SPECIAL, types)


def test_a_batch_holds_the_sequences(examples):
    indices = np.array([3, 0, len(examples) - 1])
    batch = examples.batch(indices)
    assert set(batch) <= set(examples.arrays())
    assert ("token_type_ids" in batch) == examples._token_types
    for row, length in enumerate(examples.lengths[indices]):
        ids = batch["input_ids"][row]
        assert ids[0] == SPECIAL.cls
        assert ids[length - 1] == SPECIAL.sep
        assert (ids[length:] == SPECIAL.pad).all()
        assert batch["attention_mask"][row].sum() == length
    special = np.isin(batch["input_ids"], SPECIAL.others)
    assert (batch["maskable"] == ~special).all()
    assert list(batch["index"]) == list(indices)


def test_pairs_have_types_and_labels(corpus_folder, packed_folder):
    examples = PackedExamples(corpus_folder, packed_folder, "train", 48, SPECIAL, True)
    corpus, batch = Corpus(corpus_folder, "train"), examples.batch(np.arange(len(examples)))
    for row in range(len(examples)):
        start, middle, second, end, label = examples._records.values[row]
        types = batch["token_type_ids"][row]
        ids = batch["input_ids"][row]
        assert (ids[1 : 1 + middle - start] == corpus.pieces.values[start:middle]).all()
        assert (ids[types == 1] == [*corpus.pieces.values[second:end], SPECIAL.sep]).all()
        assert batch["next_sentence"][row] == label
    assert examples.example_lengths.max() <= 48


def test_they_are_what_the_loop_reads(examples):
    import torch

    batches = DeviceBatches(examples, torch.device("cpu"), SPECIAL.pad)
    assert batches(np.array([1, 2]))["input_ids"].shape[0] == 2
    assert examples.digest() == examples.digest()
    assert examples.origins(np.array([0]))[0].of == "train"
    assert len(examples.vocabulary()) == 150
