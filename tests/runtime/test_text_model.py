"""Texts in, predictions out."""

import shutil

import numpy as np
import pytest

import compress
from compress.errors import DataError, ModelError, UsageError
from compress.model_folder.model_info import read_info, write_info
from compress.runtime import RUN_MODES
from compress.runtime.predictor import Placement
from compress.runtime.text_model import ANY_BATCH, TextModel, usual_batch
from compress.variants import VARIANTS


@pytest.fixture(scope="module")
def model(tiny_folder):
    return TextModel.open(tiny_folder("bert"))


TEXTS = ["a good film", "bad", "the plot is not so very good but it was fine", "unheardof"]


def test_predictions_do_not_depend_on_the_batch_size(model):
    predictions = model.predict(TEXTS)
    assert {prediction["label"] for prediction in predictions} <= {"bad", "good"}
    for batch in (1, 3):
        again = model.predict(TEXTS, batch=batch)
        assert [prediction["label"] for prediction in again] == [prediction["label"] for prediction in predictions]
        np.testing.assert_allclose(
            [a["probability"] for a in again], [a["probability"] for a in predictions], atol=1e-5
        )


def test_prepared_examples_make_one_padded_batch(model):
    prepared = model.prepare(TEXTS)
    arrays = model.arrays(prepared.examples)
    assert (arrays["input_ids"].shape, prepared.counts) == ((4, 13), [1, 1, 1, 1])
    decided = model.kind.decode(model.predictor.predict(arrays), arrays, model.task)
    predictions = model.kind.predictions(decided, prepared.counts, prepared.rows, model.task)
    assert model.kind.to_json(predictions, model.task) == model.predict(TEXTS)


@pytest.mark.parametrize("batch", [1, 2, 32])
def test_an_empty_text_has_an_empty_answer_and_the_others_their_own(model, batch):
    empty = {"label": None, "probability": None, "reason": "no text"}
    answers = model.predict(["", "a good film", " \t", "bad"], batch=batch)
    assert [answers[0], answers[2]] == [empty, empty]
    labels = [each["label"] for each in model.predict(["a good film", "bad"], batch=1)]
    assert [answers[1]["label"], answers[3]["label"]] == labels
    assert model.predict(["", ""]) == [empty, empty]


@pytest.mark.parametrize(
    ("stated", "batch"),
    [
        ({"batch_sensitive": True}, 1),
        ({"batch_sensitive": True, "scored_batch": 8}, 8),
        ({"batch_sensitive": False, "scored_batch": 8}, ANY_BATCH),
        ({"batch_sensitive": None}, 1),
        ({"batch_sensitive": None, "precision": "fp32"}, ANY_BATCH),
    ],
)
def test_texts_run_in_the_batches_that_were_scored(stated, batch):
    variant = VARIANTS["onnx-int8"].info.model_copy(update=stated)
    assert usual_batch(variant) == batch


def test_a_model_folder_runs_in_any_batch(model):
    assert usual_batch(None) == model.batch == ANY_BATCH


def test_no_texts_give_no_predictions(model):
    assert model.predict([]) == []


def test_compress_open_returns_a_text_model(tiny_folder):
    assert len(compress.open(tiny_folder("distilbert")).predict(["a film"])) == 1


def test_variant_for_cuda_only_is_opened_on_cuda(tiny_folder, tmp_path, monkeypatch):
    folder = shutil.copytree(tiny_folder("distilbert"), tmp_path / "winner")
    write_info(folder, read_info(folder).model_copy(update={"variant": RUN_MODES["torch-graph-bf16"]}))
    placements = []
    monkeypatch.setattr(
        "compress.runtime.text_model.open_predictor", lambda path, placement, variant: placements.append(placement)
    )
    compress.open(folder)
    compress.open(tiny_folder("distilbert"))
    assert placements == [Placement("cuda"), Placement("cpu")]


def test_single_string_is_refused(model):
    with pytest.raises(UsageError, match="list of texts"):
        model.predict("a good film")


@pytest.mark.parametrize("text", [("a", "b"), ("a", "b", "c"), 5, None])
def test_unreadable_text_is_named_by_its_number(model, text):
    with pytest.raises(UsageError, match="text 2: films reads one text"):
        model.predict(["fine", text])


@pytest.mark.parametrize("batch", [1, 2, 8])
def test_errors_number_texts_over_all_batches(model, batch):
    with pytest.raises(UsageError, match=r"^text 3: films"):
        model.predict(["fine", "good", None], batch=batch)
    with pytest.raises(UsageError, match=r"^f, line 9: films"):
        model.predict(["fine", "good", None], batch=batch, origins=["f, line 1", "f, line 2", "f, line 9"])


def test_half_a_character_is_named_by_its_text(model):
    with pytest.raises(DataError, match="text 2: it holds half a character"):
        model.predict(["fine", "a film \ud83d"])


def test_batch_of_zero_is_refused(model):
    with pytest.raises(UsageError, match="at least one"):
        model.predict(["fine"], batch=0)


def test_text_pairs(tiny_folder, tiny_task):
    task = tiny_task.model_copy(update={"text": ("left", "right")})
    model = TextModel.open(tiny_folder("bert", task))
    assert model.prepare([("good", "film")]).examples[0]["token_type_ids"] == [0, 0, 0, 1, 1]
    assert len(model.predict([("good", "film"), ("bad", "plot")])) == 2
    with pytest.raises(UsageError, match=r"2 texts \(left, right\)"):
        model.predict(["good"])


def test_folder_without_task_is_refused(tiny_folder):
    folder = tiny_folder("bert")
    write_info(folder, read_info(folder).model_copy(update={"task": None}))
    with pytest.raises(ModelError, match="which task"):
        TextModel.open(folder)
