"""The baseline of token classification: a linear model of each word and its neighbours."""

import numpy as np
import pytest

from compress.measure.baselines import baseline_predictions, word_tags
from compress.model_folder.model_info import TaskInfo
from compress.tasks import KINDS
from compress.tasks.parsing.bio_tags import tag_names

TASK = TaskInfo(
    name="t", kind="token_classification", text=("t",), labels=tag_names(("city",)), metric="f1", max_length=16
)


def row(words, *tags):
    return {"words": words.split(), "label": list(tags)}


TRAIN = [row("to Ulm", 0, 1), row("Ulm to", 1, 0), row("from Ulm", 0, 1), row("a tie", 0, 0)] * 5


def test_words_are_tagged_as_in_train():
    answers = baseline_predictions(TRAIN, [row("to Ulm by", 0, 1, 0), row("a tie", 0, 0)], TASK)
    assert answers["tag"].tolist() == [[0, 1, 0], [0, 0, -1]]
    assert answers["probability"][0].min() > 0.5
    assert KINDS["token_classification"].baseline.name == "a bag of words around each word"


def test_neighbours_decide_where_the_word_does_not():
    train = [row("fly to may", 0, 0, 1), row("we may go", 0, 0, 0)] * 10
    assert baseline_predictions(train, train[:2], TASK)["tag"].tolist() == [[0, 0, 1], [0, 0, 0]]


def test_features_of_a_word():
    assert list(word_tags.features(["Go", "to", "Ulm"], 1)) == [
        "-2 ",
        "-1 go",
        "0 to",
        "1 ulm",
        "2 ",
        "before go to",
        "after to ulm",
    ]


def test_a_single_tag_needs_no_fit():
    answers = baseline_predictions([row("a tie", 0, 0)], [row("by car", 0, 0), row("so", 0)], TASK)
    assert answers["tag"].tolist() == [[0, 0], [0, -1]]


def test_test_rows_are_read_in_parts(monkeypatch):
    test = [row("to Ulm by", 0, 1, 0), row("a tie", 0, 0), row("Ulm", 1)]
    whole = baseline_predictions(TRAIN, test, TASK)
    monkeypatch.setattr(word_tags, "PREDICT_ROWS", 2)
    assert (baseline_predictions(TRAIN, test, TASK) == whole).all()


@pytest.mark.parametrize("limit", [{"MAX_ROWS": 3}, {"MAX_PRODUCTS": 20}])
def test_large_training_sets_are_sampled(monkeypatch, limit):
    for name, value in limit.items():
        monkeypatch.setattr(word_tags, name, value)
    assert len(word_tags._sample(TRAIN, len(TASK.labels), 0)) == 3
    one, same = (baseline_predictions(TRAIN, TRAIN, TASK, seed=3) for _ in range(2))
    assert np.array_equal(one, same)
