"""Documents become pieces in files, and none of them stays in memory."""

import weakref

import numpy as np
import pytest

from compress.data.tokenizer import read_tokenizer
from compress.errors import DataError
from compress.pretrain.text.corpus_pieces import PARTS, Corpus, part_of, write_corpus
from tests.pretrain.conftest import make_documents

SEPARATOR = 3


def test_the_files_hold_the_pieces_of_every_document(corpus_folder, made_documents, vocabulary_folder):
    tokenizer = read_tokenizer(vocabulary_folder)
    found = 0
    for part in PARTS:
        corpus, first = Corpus(corpus_folder, part), 0
        for end, number in corpus.documents.values:
            document = made_documents[number]
            assert part_of(document, 0.25, 0) == part
            spans = corpus.sentences.values[first:end]
            expected = [tokenizer.encode(sentence, add_special_tokens=False) for sentence in document]
            assert [list(corpus.pieces.values[start:stop]) for start, stop in spans] == [each.ids for each in expected]
            words = [corpus.word_starts.values[start:stop].sum() for start, stop in spans]
            assert words == [len(set(each.word_ids)) for each in expected]
            assert corpus.pieces.values[spans[-1][1]] == SEPARATOR
            assert (corpus.document_of(spans[:, 0]) == number).all()
            first, found = end, found + 1
    assert found == len(made_documents)


def test_the_corpus_is_not_held_in_memory(tmp_path, vocabulary_folder, monkeypatch):
    class Sentence(str):
        """A text that can be watched."""

    monkeypatch.setattr("compress.pretrain.text.corpus_pieces.CHARACTERS_AT_ONCE", 3_000)
    alive, most = weakref.WeakSet(), 0

    def stream():
        nonlocal most
        for document in make_documents(200):
            watched = [Sentence(sentence) for sentence in document]
            alive.update(watched[:1])
            most = max(most, len(alive))
            yield watched

    write_corpus(stream(), read_tokenizer(vocabulary_folder), SEPARATOR, 0.1, 0, tmp_path)
    assert 4 < most < 40  # two groups of 3,000 characters


@pytest.mark.parametrize(("part", "expected"), [("train", 0.7), ("select", 0.15), ("held_out", 0.15)])
def test_a_part_has_its_share_of_the_documents(part, expected):
    made = make_documents(2_000)
    share = np.mean([part_of(document, 0.3, seed=5) == part for document in made])
    assert abs(share - expected) < 4.5 * np.sqrt(expected * (1 - expected) / len(made))


def test_what_chooses_weights_and_what_reports_them_share_no_document(tmp_path, vocabulary_folder):
    made = [*make_documents(60), *make_documents(60)]  # each of them twice
    write_corpus(made, read_tokenizer(vocabulary_folder), SEPARATOR, 0.5, 0, tmp_path)
    parts = {part: Corpus(tmp_path, part).documents.values[:, 1].tolist() for part in PARTS}
    texts = {part: {" ".join(made[number]) for number in numbers} for part, numbers in parts.items()}
    assert sum(map(len, parts.values())) == len(made)
    assert sum(map(len, texts.values())) == len(made) / 2


@pytest.mark.parametrize(
    ("made", "share", "message"),
    [
        ([], 0.1, "the corpus is empty"),
        ([["One sentence."]], 0.999999, "of 1 document none is left to train on"),
        ([["One sentence."]], 1e-9, "of 1 document none is left to choose the best weights by and to report them by"),
    ],
)
def test_a_corpus_without_a_part_is_refused(made, share, message, tmp_path, vocabulary_folder):
    with pytest.raises(DataError, match=message):
        write_corpus(made, read_tokenizer(vocabulary_folder), SEPARATOR, share, 0, tmp_path)
