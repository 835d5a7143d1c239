"""Every format gives the same documents, and what is no text is refused in one message."""

import gzip
import json
import tracemalloc

import pytest

from compress.errors import DataError
from compress.pretrain.pretrain_schema import Text
from compress.pretrain.text.corpus_pieces import LONGEST_DOCUMENT, documents, sentences_of


def write_jsonl(path, made):
    path.write_text("".join(json.dumps({"body": " ".join(document)}) + "\n" for document in made), encoding="utf-8")


def write_parquet(path, made):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    unreadable = pyarrow.array([2**49] * len(made), pyarrow.timestamp("s"))  # beyond what Python has
    parquet.write_table(pyarrow.table({"body": [" ".join(document) for document in made], "at": unreadable}), path)


@pytest.mark.parametrize("form", ["txt", "txt.gz", "jsonl", "jsonl.gz", "parquet"])
def test_every_format_gives_the_same_documents(form, tmp_path, made_documents, text_file):
    path = tmp_path / f"corpus.{form}"
    if form.startswith("txt"):
        path.write_bytes(text_file.read_bytes())
    else:
        {"jsonl": write_jsonl, "parquet": write_parquet}[form.split(".")[0]](path, made_documents)
    if form.endswith(".gz"):
        path.write_bytes(gzip.compress(path.read_bytes()))
    assert list(documents(Text(files=(str(path),), column="body"))) == made_documents
    assert len(list(documents(Text(files=(str(path), str(path)), column="body", limit=50)))) == 50


@pytest.mark.slow
@pytest.mark.parametrize("end", ["\n", " "], ids=["lines", "one line"])
def test_a_text_file_without_empty_lines_is_not_held_in_memory(end, tmp_path):
    path, sentences = tmp_path / "corpus.txt", [f"This is sentence {number}." for number in range(100_000)]
    path.write_text(end.join(sentences), encoding="utf-8")
    tracemalloc.start()
    try:
        count = characters = 0
        for document in documents(Text(files=(str(path),))):
            count += 1
            characters += sum(map(len, document))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    size = path.stat().st_size
    assert size / LONGEST_DOCUMENT <= count <= size / LONGEST_DOCUMENT + 1
    assert 0.95 * size < characters < size
    assert peak < size / 2


def test_a_text_is_split_into_sentences():
    text = 'It began. "Did it?" she asked. Yes!\nA new line (e.g. this one) ends one too'
    assert sentences_of(text) == [
        "It began.",
        '"Did it?" she asked.',
        "Yes!",
        "A new line (e.g. this one) ends one too",
    ]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("corpus.txt", b"a\0b\n", "NUL byte"),
        ("corpus.txt", b"\xff\xfe\x9d\n", "is not utf-8"),
        ("corpus.txt", b"PK\x03\x04....", "zip archive"),
        ("corpus.txt.gz", b"\x1f\x8b\x08\x00cut", "broken gzip"),
        ("corpus.bin", b"text", "unknown file name extension"),
        ("corpus.jsonl", b'{"txet": "a"}\n', "has no column 'text'"),
        ("corpus.jsonl", b'{"text": 3}\n', "should be a text, got 3"),
        ("corpus.jsonl", b"not json\n", "is not JSON"),
    ],
)
def test_what_is_no_text_is_refused(name, content, message, tmp_path):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        list(documents(Text(files=(str(path),))))
