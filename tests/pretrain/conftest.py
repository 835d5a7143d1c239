"""A small corpus of made-up words, in which each document has words of its own."""

import random
from pathlib import Path

import pytest

DOCUMENTS = 40


def make_documents(count=DOCUMENTS, seed=0):
    """Documents of a few sentences, of words that one document uses more than others."""
    draw = random.Random(seed)
    words = ["".join(draw.choices("abcdefghij", k=draw.randint(2, 6))) for _ in range(300)]
    documents = []
    for _ in range(count):
        own = draw.sample(words, 20)
        lengths = [draw.randint(4, 12) for _ in range(draw.randint(3, 12))]
        documents.append([" ".join(draw.choices(own, k=length)).capitalize() + "." for length in lengths])
    return documents


def write_text(path: Path, documents) -> Path:
    """A sentence a line, an empty line between documents."""
    path.write_text("\n\n".join("\n".join(document) for document in documents) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def made_documents():
    """Forty of them."""
    return make_documents()


@pytest.fixture(scope="session")
def text_file(tmp_path_factory, made_documents):
    """The same as a text file."""
    return write_text(tmp_path_factory.mktemp("text") / "corpus.txt", made_documents)


@pytest.fixture(scope="session")
def vocabulary_folder(tmp_path_factory, made_documents):
    """The tokenizer of a vocabulary learned from them."""
    from compress.pretrain.pretrain_schema import PretrainVocabulary
    from compress.pretrain.vocabulary.train_vocabulary import train_vocabulary

    folder = tmp_path_factory.mktemp("vocabulary")
    train_vocabulary(made_documents, PretrainVocabulary(size=150), folder)
    return folder


@pytest.fixture(scope="session")
def corpus_folder(tmp_path_factory, made_documents, vocabulary_folder):
    """Their pieces, with a quarter of the documents held out."""
    from compress.data.tokenizer import read_tokenizer
    from compress.pretrain.text.corpus_pieces import write_corpus

    folder = tmp_path_factory.mktemp("corpus")
    write_corpus(made_documents, read_tokenizer(vocabulary_folder), 3, 0.25, 0, folder)
    return folder


@pytest.fixture(scope="session")
def packed_folder(tmp_path_factory, corpus_folder):
    """Their sequences of 32 pieces, and their pairs of 48."""
    from compress.pretrain.text.corpus_pieces import PARTS, Corpus
    from compress.pretrain.text.sentence_packing import pack

    folder = tmp_path_factory.mktemp("packed")
    for part in PARTS:
        for length, pairs in ((32, False), (48, True)):
            pack(Corpus(corpus_folder, part), part, length, pairs=pairs, seed=0, folder=folder)
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Makes tiny masked language models of a family and seed."""
    from compress.models.tiny import write_tiny_model

    def make(family: str, seed: int) -> Path:
        folder = tmp_path_factory.mktemp(family)
        write_tiny_model(folder, family, seed, masked=True)
        return folder

    return make
