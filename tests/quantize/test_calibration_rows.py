"""Scores on rows of train, of models with given answers."""

import json

import numpy as np
import pytest

from compress.console import Console
from compress.errors import UsageError
from compress.export import BuildContext
from compress.quantize import QUANTIZERS
from compress.quantize.calibration_rows import calibration_batches, train_scorer
from tests.quantize.sample_rows import labelled_rows


def context(folder, rows):
    variant = QUANTIZERS["nncf-accuracy"].info
    return BuildContext(variant, folder, folder, console=Console("quiet"), train_rows=lambda: rows)


def answers(label):
    """A model that gives every row the same class."""
    return lambda batch: {"logits": np.eye(2, dtype=np.float32)[[label] * len(batch["input_ids"])]}


@pytest.fixture(scope="module")
def folder(tiny_folder):
    return tiny_folder("bert")


def test_the_share_of_right_answers(folder):
    rows = labelled_rows((0, 0, 1))
    score = train_scorer(context(folder, rows))
    assert score(answers(0)) == pytest.approx(2 / 3)
    assert score(answers(1)) == pytest.approx(1 / 3)


def test_an_error_counts_as_a_loss(tiny_folder, tiny_model, tiny_task):
    task = tiny_task.model_copy(update={"kind": "regression", "labels": (), "metric": "mse"})
    rows = [row | {"label": 1.0 + index % 2} for index, row in enumerate(labelled_rows())]
    score = train_scorer(context(tiny_folder(tiny_model("bert", labels=("score",)), task), rows))
    near, far = (score(lambda batch, at=at: {"logits": np.full((len(batch["input_ids"]), 1), at)}) for at in (1.5, 9.0))
    assert far < near < 0


def test_too_few_rows_are_refused(folder):
    with pytest.raises(UsageError, match="nncf-accuracy compares scores on rows of train; got 1, expected at least 2"):
        train_scorer(context(folder, labelled_rows()[:1]))


def test_a_metric_that_one_class_leaves_undefined_is_refused(tiny_folder, tiny_task):
    folder = tiny_folder("bert", tiny_task.model_copy(update={"metric": "f1"}))
    with pytest.raises(UsageError, match="where f1 is not defined: all 24 labels are equal"):
        train_scorer(context(folder, labelled_rows((1,))))
    assert train_scorer(context(folder, labelled_rows()))(answers(1)) > 0


def test_ranges_are_of_texts_with_their_default_prompt(tiny_folder, tiny_model, tiny_task):
    task = tiny_task.model_copy(update={"kind": "similarity", "labels": (), "text": ("first", "second")})
    folder = tiny_folder(tiny_model("bert", head="ForSentenceEmbedding", sentence_size=8), task)
    lines = [("line 1", "good film"), ("line 2", "bad\tdull")]
    (plain,) = calibration_batches(lines, folder, task)
    about = {"prompts": {"query": "a plot "}, "default_prompt_name": "query"}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(about))
    (prompted,) = calibration_batches(lines, folder, task)
    assert (prompted["attention_mask"].sum(axis=1) - plain["attention_mask"].sum(axis=1)).tolist() == [2, 2, 2]
