"""The rows on which a variant is compared with its source."""

from collections import Counter
from types import SimpleNamespace

import pytest

from compress.pipeline.steps import build_variant


@pytest.fixture
def drawn(monkeypatch, tiny_task):
    """Draws rows of a training set that is sorted by class; returns their labels."""
    rows = [{"text": str(index), "label": int(index >= 900)} for index in range(1000)]
    prepared = SimpleNamespace(rows=lambda role: rows, info=SimpleNamespace(task_info=tiny_task))
    encode = "compress.pipeline.steps.build_variant.encode_sample"
    monkeypatch.setattr(encode, lambda rows, chosen, task, tokens: [rows[index] for index in chosen])
    monkeypatch.setattr("compress.data.tokenizer.TextTokenizer.load", lambda folder: None)
    return lambda seed: build_variant.sample_train(prepared, None, 100, seed)


def test_rows_are_drawn_in_the_proportions_of_the_classes(drawn):
    assert Counter(row["label"] for row in drawn(0)) == {0: 90, 1: 10}


def test_rows_depend_on_the_seed_alone(drawn):
    assert drawn(0) == drawn(0)
    assert drawn(0) != drawn(1)
