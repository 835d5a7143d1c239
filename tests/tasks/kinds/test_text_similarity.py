"""Similarity of two texts by their embeddings: rows, examples, predictions and scores."""

import numpy as np
import pytest

from compress.errors import DataError, ModelError, UsageError
from compress.recipe.task_schema import Task
from compress.tasks import KINDS, task_info
from compress.tasks.validate_task import task_problems
from tests.tasks.letter_tokens import encode_letters
from tests.tasks.repeated_scores import repeated_scores

KIND = KINDS["similarity"]
WHERE = "train.tsv, row 3"


def task_of(**more):
    settings = {"kind": "similarity", "data": {"train": "a", "test": "b"}, "text": ("a", "b"), "label": "score"}
    return Task(**{**settings, "range": (0, 5), **more})


INFO = task_info(task_of(), ())


def read(first, second, score, **more):
    return KIND.read_row({"a": first, "b": second, "score": score}, task_of(**more), (), WHERE)


def test_a_row_keeps_its_own_scale_and_examples_go_from_0_to_1():
    row = read("ab", "c", "2.5")
    assert row == {"text": "ab", "text_pair": "c", "label": 2.5}
    batch = KIND.collate(KIND.examples(row, INFO, encode_letters), pad_id=0)
    assert batch["input_ids"].tolist() == [[97, 98], [99, 0]]
    assert batch["labels"].tolist() == [0.5, 0.5]
    assert batch["labels"].dtype == np.float32
    assert KIND.gold([row]).tolist() == [2.5]
    assert KIND.keep_row_together(INFO)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (("x", "y", "5.5"), "the score 5.5 is not between 0 and 5"),
        (("x", "y", "-1"), "not between 0 and 5"),
        (("x", "y", "much"), "'much' where a number is expected"),
        (("x", "y", ""), "the score is empty"),
        ((" ", "y", "1"), "column 'a' is empty"),
        (("x", "", "1"), "column 'b' is empty"),
    ],
)
def test_invalid_rows_are_refused_with_their_location(given, expected):
    with pytest.raises(DataError, match=r"^train\.tsv, row 3") as caught:
        read(*given)
    assert expected in caught.value.message


def test_contradictory_settings_are_refused():
    assert task_problems(task_of()) == []
    assert "least score to the greatest" in str(task_problems(task_of(range=(5, 0)))[0])
    assert "reads 2 columns of text, got 1" in str(task_problems(task_of(text=("a",)))[0])
    other = Task(kind="regression", data={"train": "a", "test": "b"}, range=(0, 5))
    assert "has no effect for regression; it is for similarity" in str(task_problems(other)[0])


def answered(vectors, counts):
    outputs = {"sentence_embedding": np.asarray(vectors, np.float32)}
    return KIND.predictions(KIND.decode(outputs, {}, INFO), counts, [{}] * len(counts), INFO)


def test_a_pair_gives_its_cosine_and_a_text_its_embedding():
    vectors = [[1, 0], [0.6, 0.8], [0, 1], [0, -1]]
    pairs = answered(vectors, [2, 2])
    assert KIND.to_json(pairs, INFO) == [{"score": pytest.approx(0.6)}, {"score": -1.0}]
    assert KIND.describe(pairs, INFO) == ["0.60", "-1.00"]
    assert KIND.describe_gold(np.array([2.5]), INFO) == ["0.50"]
    alone = answered(vectors, [1] * 4)
    assert KIND.to_json(alone, INFO)[2] == {"embedding": [0.0, 1.0]}
    with pytest.raises(UsageError, match="not both in one batch"):
        answered(vectors[:3], [2, 1])


def test_one_text_or_two_are_valid_inputs():
    assert KIND.from_input("x", INFO) == {"text": "x", "text_pair": None}
    assert KIND.from_input(("x", "y"), INFO) == {"text": "x", "text_pair": "y"}
    assert len(KIND.examples(KIND.from_input("x", INFO), INFO, encode_letters)) == 1
    assert "labels" not in KIND.collate(KIND.examples(KIND.from_input(("x", "y"), INFO), INFO, encode_letters), 0)
    with pytest.raises(UsageError, match=r"two texts \(a, b\) to compare, or one to embed"):
        KIND.from_input(("x", "y", "z"), INFO)


@pytest.mark.parametrize("given", ["", " ", ("", ""), ("x", " ")])
def test_empty_texts_are_like_nothing(given):
    with pytest.raises(UsageError, match="nothing is similar to an empty text"):
        KIND.from_input(given, INFO)


def test_embeddings_that_are_no_numbers_are_refused():
    with pytest.raises(ModelError, match="NaN or infinite for 1 of 2 texts"):
        answered([[1, 0], [np.nan, 0]], [2])
    with pytest.raises(ModelError, match="returns logits where this task expects sentence_embedding"):
        KIND.decode({"logits": np.zeros((2, 1))}, {}, INFO)


@pytest.mark.parametrize("rows", [1, 2, 30])
def test_scores_agree_with_scipy_and_draws_with_repeated_rows(rows):
    stats = pytest.importorskip("scipy.stats")
    random = np.random.default_rng(rows)
    gold = random.integers(0, 6, rows).astype(np.float32)
    answers = (gold / 5 + random.normal(size=rows)).astype(np.float32)
    if rows == 30:
        scores = KIND.score(answers, gold, INFO)
        assert scores["spearman"] == pytest.approx(stats.spearmanr(answers, gold).statistic)
        assert scores["pearson"] == pytest.approx(stats.pearsonr(answers, gold).statistic, rel=1e-5)
    times = np.stack([np.bincount(random.integers(0, rows, rows), minlength=rows) for _ in range(10)]).astype(float)
    fast = KIND.weighted_scores(answers, gold, INFO, times)
    slow = repeated_scores(KIND, answers, gold, INFO, times)
    for metric, values in slow.items():
        np.testing.assert_allclose(fast[metric], values, atol=1e-9)


def test_a_text_without_known_pieces_is_similar_to_none():
    decoded = [np.zeros(4, np.float32), *[np.ones(4, np.float32)] * 3]
    assert KINDS["similarity"].predictions(decoded, [2, 2], [{}, {}], None).tolist() == [0.0, 1.0]
