"""Sequences are whole sentences; pairs stay within documents, and half of them follow each other."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from compress.data.tokenizer import read_tokenizer
from compress.errors import DataError
from compress.pretrain.text.corpus_pieces import Corpus, write_corpus
from compress.pretrain.text.sentence_packing import PackedExamples, SpecialPieces, pack, pack_pairs, pack_runs
from compress.train.core.gradients import DeviceBatches
from tests.pretrain.conftest import make_documents

ROOM = 40


@pytest.fixture(scope="module")
def corpus(tmp_path_factory, vocabulary_folder):
    folder = tmp_path_factory.mktemp("large")
    write_corpus(make_documents(600), read_tokenizer(vocabulary_folder), 3, 0.1, 0, folder)
    return Corpus(folder, "train")


def bounds(corpus):
    """The first piece of every sentence, and the one after its last."""
    return set(corpus.sentences.values[:, 0].tolist()), set(corpus.sentences.values[:, 1].tolist())


def test_runs_hold_every_sentence_once(corpus):
    runs = [(first, last) for first, last, *_ in pack_runs(corpus, ROOM)]
    assert all(0 < last - first <= ROOM for first, last in runs)
    covered = np.zeros(len(corpus.pieces.values) + 1, int)
    for first, last in runs:
        covered[first:last] += 1
    assert all((covered[start:stop] == 1).all() for start, stop in corpus.sentences.values)
    starts, _ = bounds(corpus)
    long = sum(stop - start > ROOM for start, stop in corpus.sentences.values)
    assert sum(first not in starts for first, _ in runs) <= 4 * long


def test_pairs_stay_within_documents_and_half_of_them_follow(corpus):
    records = list(pack_pairs(corpus, ROOM, seed=0))
    assert all(b - a + d - c <= ROOM and b > a and d > c for a, b, c, d, _ in records)
    numbers = corpus.document_of(np.array([[a, b - 1, c, d - 1] for a, b, c, d, _ in records]))
    other = np.array([label for *_, label in records], bool)
    assert (numbers[:, 0] == numbers[:, 1]).all()
    assert (numbers[:, 2] == numbers[:, 3]).all()
    assert ((numbers[:, 0] == numbers[:, 2]) == ~other).all()
    assert all(b == c for a, b, c, d, label in records if not label)
    assert abs(other.mean() - 0.5) < 4.5 * math.sqrt(0.25 / len(records))


def corpus_of_lengths(sentences, lengths):
    """A corpus of documents with so many sentences, and of sentences with so many pieces."""
    ends, stops = np.cumsum(sentences), np.cumsum(lengths)
    arrays = {"documents": (ends, np.arange(len(ends))), "sentences": (stops - lengths, stops)}
    fields = {name: SimpleNamespace(values=np.stack(each, axis=1), release=int) for name, each in arrays.items()}
    return SimpleNamespace(**fields)


def accuracy_by_lengths(records, bins=6):
    """The share of pairs that are classified right by the more frequent label of others of about the same lengths."""
    cells, label = np.zeros(len(records), int), records[:, 4]
    for length in (records[:, 1] - records[:, 0], records[:, 3] - records[:, 2]):
        edges = np.quantile(length, np.linspace(0, 1, bins + 1)[1:-1])
        cells = cells * bins + np.searchsorted(edges, length)
    learned, scored = np.arange(len(records)) % 2 == 0, np.arange(len(records)) % 2 == 1
    votes = np.bincount(cells[learned], 2 * label[learned] - 1, minlength=bins * bins)
    return ((votes > 0)[cells[scored]] == label[scored]).mean()


@pytest.mark.parametrize("room", [61, 125])
def test_the_lengths_of_pairs_give_little_away(room):
    # Second parts of other documents that were as long as those that they replaced gave 63 to 65 % of the answers away.
    draw = np.random.default_rng(0)
    sentences = draw.integers(20, 60, size=600)
    lengths = draw.lognormal(2.9, 0.6, sentences.sum()).astype(int).clip(2, 200)
    records = np.array(list(pack_pairs(corpus_of_lengths(sentences, lengths), room, seed=0)))
    assert accuracy_by_lengths(records) < 0.58


def test_pairs_of_one_document_are_refused(corpus, tmp_path):
    corpus.documents.values, documents = corpus.documents.values[:1], corpus.documents.values
    try:
        with pytest.raises(DataError, match="has a single document"):
            pack(corpus, "train", 64, pairs=True, seed=0, folder=tmp_path)
    finally:
        corpus.documents.values = documents


def test_the_packing_depends_on_the_seed_alone(corpus):
    first, again, another = (list(pack_pairs(corpus, ROOM, seed)) for seed in (0, 0, 1))
    assert first == again != another


def test_pairs_need_two_sentences(tmp_path, vocabulary_folder):
    made = [[sentence] for document in make_documents(20) for sentence in document[:1]]
    write_corpus(made, read_tokenizer(vocabulary_folder), 3, 0.3, 0, tmp_path)
    with pytest.raises(DataError, match="has two sentences"):
        pack(Corpus(tmp_path, "train"), "train", 400, pairs=True, seed=0, folder=tmp_path)


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
