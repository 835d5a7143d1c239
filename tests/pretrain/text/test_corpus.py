"""Documents become pieces in files, and none of them stays in memory."""

from __future__ import annotations

import weakref

import numpy as np
import pytest

from compress.data.tokenizer import read_tokenizer
from compress.errors import DataError
from compress.pretrain.text.corpus import DOCUMENTS_AT_ONCE, PARTS, Corpus, is_held_out, write_corpus
from tests.pretrain.conftest import make_documents

SEPARATOR = 3


def test_the_files_hold_the_pieces_of_every_document(corpus_folder, made_documents, vocabulary_folder):
    tokenizer = read_tokenizer(vocabulary_folder)
    found = 0
    for part in PARTS:
        corpus, first = Corpus(corpus_folder, part), 0
        for end, number in corpus.documents.values:
            document = made_documents[number]
            assert is_held_out(document, 0.25, 0) == (part == "held_out")
            spans = corpus.sentences.values[first:end]
            expected = [tokenizer.encode(sentence, add_special_tokens=False) for sentence in document]
            assert [list(corpus.pieces.values[start:stop]) for start, stop in spans] == [each.ids for each in expected]
            words = [corpus.word_starts.values[start:stop].sum() for start, stop in spans]
            assert words == [len(set(each.word_ids)) for each in expected]
            assert corpus.pieces.values[spans[-1][1]] == SEPARATOR
            assert (corpus.document_of(spans[:, 0]) == number).all()
            first, found = end, found + 1
    assert found == len(made_documents)


def test_the_corpus_is_not_held_in_memory(tmp_path, vocabulary_folder):
    class Sentence(str):
        """A text that can be watched."""

    alive, most = weakref.WeakSet(), 0

    def stream():
        nonlocal most
        for document in make_documents(5 * DOCUMENTS_AT_ONCE):
            watched = [Sentence(sentence) for sentence in document]
            alive.update(watched[:1])
            most = max(most, len(alive))
            yield watched

    write_corpus(stream(), read_tokenizer(vocabulary_folder), SEPARATOR, 0.1, 0, tmp_path)
    assert most <= 2 * DOCUMENTS_AT_ONCE + 2


def test_half_of_the_documents_can_be_held_out():
    made = make_documents(2_000)
    share = np.mean([is_held_out(document, 0.3, seed=5) for document in made])
    assert abs(share - 0.3) < 4.5 * np.sqrt(0.3 * 0.7 / len(made))


@pytest.mark.parametrize(
    ("made", "share", "message"),
    [
        ([], 0.1, "the corpus is empty"),
        ([["One sentence."]], 0.999999, "of 1 documents none is left to train on"),
        ([["One sentence."]], 1e-9, "of 1 documents none is held out"),
    ],
)
def test_a_corpus_without_a_part_is_refused(made, share, message, tmp_path, vocabulary_folder):
    with pytest.raises(DataError, match=message):
        write_corpus(made, read_tokenizer(vocabulary_folder), SEPARATOR, share, 0, tmp_path)
