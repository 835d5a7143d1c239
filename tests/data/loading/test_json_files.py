"""Rows of one JSON document: every shape, and every way in which a document can be wrong."""

import gzip
import json
from pathlib import Path

import pytest

from compress.data.loading.raw_rows import file_rows
from compress.errors import DataError
from compress.recipe.task_schema import Data

ARTICLES = {
    "version": "2.0",
    "data": [
        {
            "title": "Tea",
            "paragraphs": [
                {
                    "context": "Green tea is drunk hot.",
                    "qas": [
                        {"id": "1", "question": "What?", "answers": [{"text": "Green tea", "answer_start": 0}]},
                        {"id": "2", "question": "Why?", "answers": [], "is_impossible": True},
                    ],
                }
            ],
        }
    ],
}
SEARCH = {"questions": ["q", "r"], "candidates": ["one", "two", "three"], "ground_truths": [[2], [0, 1]]}


def read(path, role="train", **settings):
    return list(file_rows(path, Data(train=str(path), **settings), role))


@pytest.fixture
def document(tmp_path):
    """Writes a document and gives its rows."""

    def rows(content, role="train", name="a.json"):
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return read(path, role)

    return rows


def test_articles_give_a_row_a_question(document):
    rows = document(ARTICLES)
    assert dict(rows[0].values) == {
        "id": "1",
        "title": "Tea",
        "question": "What?",
        "context": "Green tea is drunk hot.",
        "answers": [{"text": "Green tea", "answer_start": 0}],
        "is_impossible": False,
    }
    assert rows[1].values["is_impossible"] is True
    assert rows[1].where.endswith("a.json, article 1, paragraph 1, question 2")


def test_lists_of_objects_and_objects_of_lists(document):
    rows = [{"text": "a", "label": 1}, {"text": "b", "label": 0}]
    for content in (rows, {"text": ["a", "b"], "label": [1, 0]}):
        result = document(content)
        assert [dict(row.values) for row in result] == rows
        assert result[1].where.endswith("a.json, row 2")


def test_questions_that_share_candidates(document):
    assert [dict(row.values) for row in document(SEARCH)] == [
        {"question": "q", "answers": ["three"]},
        {"question": "r", "answers": ["one", "two"]},
    ]
    corpus = document(SEARCH, role="corpus")
    assert [row.values["text"] for row in corpus] == ["one", "two", "three"]
    assert corpus[2].where.endswith("candidate 3")


def test_gzip_byte_order_mark_and_format(tmp_path):
    packed = tmp_path / "a.json.gz"
    packed.write_bytes(gzip.compress(b"\xef\xbb\xbf" + json.dumps(ARTICLES).encode()))
    assert len(read(packed)) == 2
    other = tmp_path / "a.txt"
    other.write_text(json.dumps(SEARCH))
    assert len(read(other, format="json")) == 2


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (json.dumps(ARTICLES)[:150], "may be cut off"),
        (json.dumps(SEARCH)[:-1], "may be cut off"),
        ('{"text": "a"}\n{"text": "b"}\n', "not a JSON document: Extra data: line 2"),
        ("", "is empty"),
        ("[]", "has no rows"),
        ('{"text": []}', "has no rows"),
        ('"text"', "is a JSON text where"),
        ("[1]", "row 1 is a JSON number where a JSON object"),
        ('[{"a": 1, "a": 2}]', "occurs twice"),
        ('{"text": ["a"], "label": [1, 2]}', "different lengths (text 1, label 2)"),
        ('{"text": ["a"], "version": "1"}', "'version' is a JSON text where a JSON list"),
        ({"data": {}}, "'data' is a JSON object where a JSON list"),
        ({"data": [{"title": "x"}]}, "article 1 has no 'paragraphs'; it has 'title'"),
        ({"data": [{"paragraphs": [{"qas": []}]}]}, "article 1, paragraph 1 has no 'context'"),
        ({"data": [{"paragraphs": [{"context": "c", "qas": [3]}]}]}, "paragraph 1, question 1 is a JSON number"),
        ({**SEARCH, "ground_truths": [[2], [3]]}, "question 2: its ground truth '3' is none of 3 candidates"),
        ({**SEARCH, "ground_truths": [[2], 1]}, "question 2: its ground truth is a JSON number"),
        ({**SEARCH, "ground_truths": [[2], [True]]}, "ground truth 'True'"),
        ({**SEARCH, "ground_truths": [[2]]}, "different lengths (questions 2, ground_truths 1)"),
        ("[" * 100_000, "not a JSON document"),
    ],
)
def test_malformed_documents_are_refused_with_their_location(document, content, expected):
    with pytest.raises(DataError) as caught:
        document(content)
    assert expected in caught.value.message
    assert "a.json" in caught.value.message


def test_broken_gzip(tmp_path):
    path = tmp_path / "a.json.gz"
    path.write_bytes(gzip.compress(json.dumps(ARTICLES).encode())[:-20])
    with pytest.raises(DataError, match="broken gzip"):
        read(path)


def test_real_documents(data_folder: Path):
    counts = {"squad/dev-v1.1": 10_570, "squad/dev-v2.0": 11_873, "reqa_squad/train": 10_000, "reqa_squad/test": 10_539}
    for name, rows in counts.items():
        assert len(read(data_folder / f"{name}.json.gz")) == rows
    assert len(read(data_folder / "reqa_squad/test.json.gz", "corpus")) == 10_246
