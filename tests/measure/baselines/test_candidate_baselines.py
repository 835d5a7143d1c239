"""What simple things reach where texts of a list are scored: a bag of words for choices, BM25 for candidates."""

import numpy as np
import pytest

from compress.measure.baselines import baseline_predictions
from compress.measure.baselines.bag_of_words import Pairs
from compress.model_folder.model_info import TaskInfo
from compress.tasks import KINDS

pytest.importorskip("sklearn")


def task(kind):
    metric = KINDS[kind].metrics[0].name
    return TaskInfo(name="t", kind=kind, text=("question", "texts"), metric=metric, max_length=32)


def questions(count, seed):
    """The right choice holds a colour; there are two to four choices."""
    random = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        choices = [f"a {word}" for word in random.choice(["table", "lamp", "door", "cup"], random.integers(2, 5))]
        label = int(random.integers(len(choices)))
        choices[label] = f"a {random.choice(['red', 'green', 'blue'])} {choices[label]}"
        rows.append({"text": "what is bright?", "choices": choices, "label": label})
    return rows


def test_choices_are_classified_by_their_words():
    kind, test = KINDS["multiple_choice"], questions(40, 1)
    answers = baseline_predictions(questions(150, 0), test, task("multiple_choice"))
    assert answers.shape == (40, max(len(row["choices"]) for row in test))
    assert kind.score(answers, kind.gold(test), task("multiple_choice"))["accuracy"] > 0.95
    there = answers >= 0
    assert there.sum(axis=1).tolist() == [len(row["choices"]) for row in test]
    assert np.where(there, answers, 0).sum(axis=1) == pytest.approx(np.ones(40), rel=1e-5)


def test_pairs_are_each_question_with_each_choice():
    rows = questions(20, 2)
    pairs = Pairs(rows)
    expected = [
        {"text": row["text"], "text_pair": choice, "label": int(index == row["label"])}
        for row in rows
        for index, choice in enumerate(row["choices"])
    ]
    assert list(pairs) == expected
    assert pairs[3:7] == expected[3:7]
    assert [pairs[end - 1]["text_pair"] for end in pairs.ends] == [row["choices"][-1] for row in rows]


def test_candidates_that_share_rare_words_with_their_question_come_first():
    rows = [
        {"text": "where is the harbour", "candidates": ["the town is old", "a harbour is there"], "label": [0.0, 1.0]},
        {"text": "who wrote it", "candidates": ["she wrote it", "it rained", "the end"], "label": [1.0, 0.0, 0.0]},
    ]
    kind = KINDS["ranking"]
    answers = baseline_predictions([], rows, task("ranking"))
    assert kind.score(answers, kind.gold(rows), task("ranking"))["map"] == 1.0
    assert KINDS["ranking"].baseline.name == "BM25"


def test_candidates_without_shared_words_are_ordered_at_random():
    rows = [{"text": "nothing", "candidates": ["one", "two", "three"], "label": [1.0, 0.0, 0.0]}] * 300
    kind = KINDS["ranking"]
    answers = baseline_predictions([], rows, task("ranking"), seed=1)
    assert kind.score(answers, kind.gold(rows), task("ranking"))["precision_at_1"] == pytest.approx(1 / 3, abs=0.1)
    assert (answers == baseline_predictions([], rows, task("ranking"), seed=1)).all()
