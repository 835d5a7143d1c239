"""The floor of token classification: each word's most frequent tag."""

import numpy as np
import pytest

from compress.measure.baselines import baseline_for, baseline_predictions, word_tags
from compress.model_info import TaskInfo
from compress.tasks.parsing.bio_tags import tag_names

TASK = TaskInfo(
    name="t", kind="token_classification", text=("t",), labels=tag_names(("city",)), metric="f1", max_length=16
)


def row(words, *tags):
    return {"words": words.split(), "label": list(tags)}


TRAIN = [row("to Ulm", 0, 1), row("Ulm to", 1, 0), row("Ulm to", 0, 1), row("tie", 0), row("tie", 1)]


def test_each_word_gets_its_most_frequent_tag():
    answers = baseline_predictions(TRAIN, [row("to Ulm by", 0, 1, 0), row("tie", 0)], TASK)
    assert answers["tag"].tolist() == [[0, 1, 0], [0, -1, -1]]
    assert answers["probability"].tolist() == pytest.approx(np.array([[2 / 3, 2 / 3, 0], [0.5, 0, 0]]))
    assert baseline_for("token_classification").name == "each word's most frequent tag"


def test_row_of_unknown_words():
    assert baseline_predictions(TRAIN, [row("by car", 0, 0)], TASK)["tag"].tolist() == [[0, 0]]


def test_large_training_sets_are_sampled(monkeypatch):
    monkeypatch.setattr(word_tags, "MAX_ROWS", 2)
    one, same = (baseline_predictions(TRAIN, TRAIN, TASK, seed=3) for _ in range(2))
    assert (one == same).all()
