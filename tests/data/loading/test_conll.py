"""Columns of words and tags: sentences, their places, and files that are wrong."""

import gzip

import pytest

from compress.data.loading.raw_rows import file_rows, format_of
from compress.errors import DataError
from compress.recipe.task_schema import Data

COLUMNS = "-DOCSTART- -X- O O\n\nWe PRP B-NP O\nmet VBD B-VP O\n\n\nKöln NNP I-NP I-LOC\n"


def read(path, role="train", **settings):
    return list(file_rows(path, Data(train=str(path), **settings), role))


@pytest.mark.parametrize("name", ["a.conll", "a.bio", "a.iob", "a.conll.gz"])
@pytest.mark.parametrize("change", [str, lambda text: text.replace(" ", "\t"), lambda text: text.replace("\n", "\r\n")])
def test_sentences_between_empty_lines(write, name, change):
    content = change(COLUMNS).encode()
    rows = read(write(name, gzip.compress(content) if name.endswith(".gz") else content))
    assert [row.values["tokens"] for row in rows] == [["We", "met"], ["Köln"]]
    assert [row.values["tags"] for row in rows] == [["O", "O"], ["I-LOC"]]
    assert rows[1].values["2"] == ["I-NP"]
    assert rows[0].values["0"] == rows[0].values["tokens"]
    assert [row.where.rpartition("a")[2].partition(", ")[2] for row in rows] == ["row 1 (line 3)", "row 2 (line 7)"]


def test_any_name_with_format_and_names_from_a_header(write):
    path = write("train.txt", "a X O\nb Y O\n")
    [row] = read(path, format="conll", header=("word", "part", "tag"))
    assert row.values == {"word": ["a", "b"], "part": ["X", "Y"], "tag": ["O", "O"]}
    assert format_of(write("b.iob", "")) == "conll"


def test_spaces_around_columns_are_nothing_and_tabs_are_something(write):
    assert read(write("a.bio", " a   O \n"))[0].values["tokens"] == ["a"]
    assert read(write("b.bio", "a b\tO\n"))[0].values["tokens"] == ["a b"]


def test_a_new_document_ends_a_sentence_and_the_last_needs_no_empty_line(write):
    rows = read(write("a.bio", "a O\n-DOCSTART- O\nb O"))
    assert [row.values["tokens"] for row in rows] == [["a"], ["b"]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a O\n\nb O\nc\n", "line 4 has 1 column where the lines before have 2"),
        ("a O\nNew York B-x\n", "line 2 has 3 columns where the lines before have 2"),
        ("a\nb\n", "line 1 has 1 column where a word and its tag"),
        ("\n\n-DOCSTART- O\n\n", "has no rows"),
        ("", "has no rows"),
    ],
)
def test_malformed_lines_are_refused(write, content, message):
    with pytest.raises(DataError, match=message) as fault:
        read(write("a.bio", content))
    assert "a.bio" in str(fault.value)


def test_a_header_of_another_width(write):
    with pytest.raises(DataError, match=r"line 1 has 2 columns where task.data.header names 3"):
        read(write("a.bio", "a O\n"), header=("a", "b", "c"))


def test_a_cut_archive_and_other_bytes(write):
    with pytest.raises(DataError, match=r"a.bio.gz is broken gzip"):
        read(write("a.bio.gz", gzip.compress(COLUMNS.encode() * 100)[:-20]))
    with pytest.raises(DataError, match=r"b.bio, line 2: byte 0xe9"):
        read(write("b.bio", b"a O\n\xe9 O\n"))
