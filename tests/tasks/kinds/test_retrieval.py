"""Queries and documents: rows, examples, what is found and what it is worth."""

import numpy as np
import pytest

from compress.errors import DataError, UsageError
from compress.recipe.task_schema import Task
from compress.tasks import KINDS, task_info
from compress.tasks.kinds.retrieval import retrieved_documents
from compress.tasks.validate_task import task_problems
from tests.tasks.letter_tokens import encode_letters
from tests.tasks.repeated_scores import repeated_scores

KIND = KINDS["retrieval"]
WHERE = "train.jsonl, row 3"


def task_of(**more):
    settings = {"kind": "retrieval", "data": {"train": "a", "test": "b"}, "text": ("query",), "label": "answers"}
    return Task(**{**settings, **more})


INFO = task_info(task_of(), ())


def read(values, **more):
    return KIND.read_row(values, task_of(**more), (), WHERE)


def test_documents_are_a_text_or_a_list_without_duplicates():
    assert read({"query": "q", "answers": "x"}) == {"query": "q", "positives": ["x"], "negatives": []}
    row = read({"query": "q", "answers": ["x", "y", "x"], "wrong": "z"}, negatives="wrong")
    assert row == {"query": "q", "positives": ["x", "y"], "negatives": ["z"]}
    assert read({"query": "q", "answers": "x"}, negatives="wrong")["negatives"] == []


def test_a_cell_may_hold_a_json_list_or_nothing():
    row = read({"query": "q", "answers": '["x", "y"]', "wrong": ""}, negatives="wrong")
    assert row == {"query": "q", "positives": ["x", "y"], "negatives": []}
    row = read({"query": "q", "answers": "[1]", "wrong": '["z"]'}, negatives="wrong")
    assert row == {"query": "q", "positives": ["[1]"], "negatives": ["z"]}
    assert read({"query": "q", "answers": "[aside] x"})["positives"] == ["[aside] x"]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"query": " ", "answers": "x"}, "the query is empty"),
        ({"query": "q", "answers": []}, "no document that answers"),
        ({"query": "q", "answers": None}, "no document that answers"),
        ({"query": "q", "answers": " "}, "no document that answers"),
        ({"query": "q", "answers": ["x", " "]}, "column 'answers' holds an empty document"),
        ({"query": "q", "answers": 3}, "where text is expected"),
        ({"query": "q", "answers": [3]}, "where text is expected"),
        ({"query": "q", "answers": "x", "wrong": ["y", "x"]}, "among both the positives and the negatives: 'x'"),
        ({"question": "q", "answers": "x"}, "there is no column 'query'"),
    ],
)
def test_invalid_rows_are_refused_with_their_location(values, expected):
    with pytest.raises(DataError, match=r"^train\.jsonl, row 3") as caught:
        read(values, negatives="wrong")
    assert expected in caught.value.message


def test_rows_are_stored_as_their_role_needs_them():
    row = read({"query": "q", "answers": ["x", "y"], "wrong": ["z"]}, negatives="wrong")
    assert KIND.store_rows(row, None) == [
        {"query": "q", "positives": ["x"], "negatives": ["z"]},
        {"query": "q", "positives": ["y"], "negatives": ["z"]},
    ]
    assert KIND.store_rows(row, "wxyz".index) == [{"query": "q", "relevant": [1, 2]}]


def test_rows_to_learn_from_give_query_positive_and_negatives():
    row = {"query": "ab", "positives": ["c"], "negatives": ["d", "e"]}
    batch = KIND.collate(KIND.examples(row, INFO, encode_letters), pad_id=7)
    assert batch["input_ids"].tolist() == [[97, 98], [99, 7], [100, 7], [101, 7]]
    assert batch["part"].tolist() == [0, 1, 2, 2]
    assert batch["part"].dtype == np.int64
    assert "scores" not in batch
    batch = KIND.collate(KIND.examples({**row, "scores": [3, 1.5, -1]}, INFO, encode_letters), pad_id=7)
    assert batch["scores"].tolist() == [0.0, 3.0, 1.5, -1.0]
    assert batch["scores"].dtype == np.float32


def test_queries_and_documents_are_one_example_each():
    assert len(KIND.examples({"query": "q", "relevant": [4]}, INFO, encode_letters)) == 1
    assert len(KIND.examples({"document": "d"}, INFO, encode_letters)) == 1
    assert len(KIND.examples(KIND.from_input("text", INFO), INFO, encode_letters)) == 1
    with pytest.raises(UsageError, match="reads one text, a query or a document"):
        KIND.from_input(("a", "b"), INFO)


def test_search_by_embeddings():
    outputs = {"sentence_embedding": np.array([[1, 0], [0, 1]], np.float32)}
    queries = KIND.predictions(KIND.decode(outputs, {}, INFO), [1, 1], [{}, {}], INFO)
    documents = np.array([[0, 1], [0.6, 0.8], [1, 0]], np.float32)
    result = KIND.search(queries, documents, INFO)
    assert result["found"].tolist() == [[2, 1, 0], [0, 1, 2]]
    assert KIND.to_json(result, INFO)[0] == {"documents": [2, 1, 0], "scores": pytest.approx([1.0, 0.6, 0.0])}
    assert KIND.describe(result, INFO) == ["documents 2, 1, 0", "documents 0, 1, 2"]
    assert KIND.to_json(queries, INFO) == [{"embedding": [1.0, 0.0]}, {"embedding": [0.0, 1.0]}]
    gold = KIND.gold([{"query": "q", "relevant": [2]}, {"query": "p", "relevant": [1, 2]}])
    assert gold.tolist() == [[2, -1], [1, 2]]
    assert KIND.describe_gold(gold, INFO) == ["document 2", "documents 1, 2"]
    assert KIND.score(result, gold, INFO) == {
        "mrr": 0.75,
        "recall_at_1": 0.5,
        "recall_at_10": 1.0,
        "recall_at_100": 1.0,
        "ndcg_at_10": pytest.approx((1 + (1 / np.log2(3) + 0.5) / (1 + 1 / np.log2(3))) / 2),
    }
    assert KIND.correct(result, gold).tolist() == [True, False]


def test_documents_of_one_query_are_right_in_all_of_its_rows():
    lines = [("q", [4]), ("p", [1]), ("q", [2, 4])]
    gold = KIND.gold([{"query": query, "relevant": numbers} for query, numbers in lines])
    assert gold.tolist() == [[4, 2], [1, -1], [4, 2]]
    result = retrieved_documents(np.array([[2], [1], [4]]), np.ones((3, 1)))
    assert KIND.correct(result, gold).all()


def test_two_models_are_compared_by_their_retrieved_documents():
    one = retrieved_documents(np.array([[0, 1], [2, 3]]), np.ones((2, 2)))
    other = retrieved_documents(np.array([[1, 0], [2, 5]]), np.ones((2, 2)))
    assert KIND.same_decision(one, other).tolist() == [False, True]
    assert KIND.distance(one, one).tolist() == [0.0, 0.0]
    assert KIND.distance(one, other).tolist() == [0.5, 0.25]


@pytest.mark.parametrize("rows", [1, 3, 40])
def test_scores_of_draws_are_those_of_the_repeated_rows(rows):
    random = np.random.default_rng(rows)
    result = np.stack([random.permutation(30)[:20] for _ in range(rows)])
    true = [random.permutation(30)[: random.integers(1, 4)].tolist() for _ in range(rows)]
    gold = KIND.gold([{"query": str(row), "relevant": numbers} for row, numbers in enumerate(true)])
    answers = retrieved_documents(result, random.random((rows, 20)))
    times = np.stack([np.bincount(random.integers(0, rows, rows), minlength=rows) for _ in range(10)]).astype(float)
    fast = KIND.weighted_scores(answers, gold, INFO, times)
    slow = repeated_scores(KIND, answers, gold, INFO, times)
    assert set(fast) == set(slow) == {metric.name for metric in KIND.metrics}
    for metric, values in slow.items():
        np.testing.assert_allclose(fast[metric], values, atol=1e-9)


def test_predictions_can_be_stored_in_a_file(tmp_path):
    answers = retrieved_documents(np.array([[0, 1]]), np.array([[0.5, 0.25]]))
    np.savez(tmp_path / "a.npz", allow_pickle=False, test=answers)
    assert (np.load(tmp_path / "a.npz")["test"] == answers).all()


def test_contradictory_settings_are_refused():
    assert task_problems(task_of(hard_negatives=2, negatives="wrong")) == []
    assert "also task.text or task.label" in str(task_problems(task_of(negatives="answers"))[0])
    other = Task(kind="regression", data={"train": "a", "test": "b", "corpus": "c"}, hard_negatives=1)
    problems = " ".join(map(str, task_problems(other)))
    assert "has no effect for regression" in problems
    assert "searches no documents" in problems
