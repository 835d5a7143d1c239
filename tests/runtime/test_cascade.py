"""A cascade answers as its first model where that is sure, and as its second elsewhere, however it is used."""

import shutil

import numpy as np
import pytest
import torch

import compress
from compress.errors import ModelError
from compress.model_folder.cascade_info import (
    CASCADE,
    CASCADE_FILE,
    FIRST,
    THEN,
    CascadeInfo,
    model_folders,
    write_cascade,
)
from compress.model_folder.model_info import FolderInfo, TaskInfo, VariantInfo, read_info, write_info
from compress.runtime import open_predictor
from compress.runtime.cascade import BothModels, CascadeModel

TEXTS = ["a good film", "so bad", "the plot is fine", "good", "bad bad bad", "not so very good", "unheardof", "fine"]
KINDS = ("classification", "multi_label")


@pytest.fixture(scope="module", params=KINDS)
def parts(request, tiny_model, tiny_folder, tmp_path_factory):
    """Two models of one task that decide differently, and the folder that holds both as a cascade."""
    task = TaskInfo(
        name="films",
        kind=request.param,
        text=("sentence",),
        labels=("bad", "good"),
        metric="accuracy" if request.param == "classification" else "micro_f1",
        max_length=32,
    )
    folder = tmp_path_factory.mktemp("cascade")
    for part, seed in ((FIRST, 1), (THEN, 2)):
        torch.manual_seed(seed)
        model = tiny_model("bert")
        with torch.no_grad():
            torch.nn.init.normal_(model.classifier.weight, std=2.0)  # different for each, and clear
        shutil.copytree(tiny_folder(model, task), folder / part)
    return folder, task


@pytest.fixture
def cascade(parts):
    """Makes the cascade with a threshold."""
    folder, task = parts
    info = VariantInfo(name=CASCADE, format=CASCADE, precision="mixed", runtime=CASCADE, batch_sensitive=False)
    write_info(folder, FolderInfo(step=CASCADE, task=task, inputs=(), variant=info))

    def make(threshold, share=0.5):
        write_cascade(folder, CascadeInfo(first="a/torch-fp32", then="b/torch-fp32", threshold=threshold, share=share))
        return folder

    return make


def certainties(folder):
    model = compress.open(folder)
    return np.array([model.certainty(text) for text in TEXTS])


def test_each_text_is_answered_by_the_model_that_should(cascade, parts):
    folder = parts[0]
    sure = certainties(cascade(0.5))
    threshold = float(np.sort(sure)[4])
    first, then = (compress.open(folder / part).predict(TEXTS, batch=1) for part in (FIRST, THEN))
    expected = [a if certain >= threshold else b for a, b, certain in zip(first, then, sure, strict=True)]
    assert first != expected != then
    for batch in (1, 3, 32):
        answers = compress.open(cascade(threshold)).predict(TEXTS, batch=batch)
        assert [next(iter(answer.values())) for answer in answers] == [next(iter(each.values())) for each in expected]
    assert compress.open(cascade(0.0)).predict(TEXTS, batch=1) == first
    assert compress.open(cascade(1.1)).predict(TEXTS, batch=1) == then


def test_an_empty_text_is_answered_by_neither(cascade):
    assert compress.open(cascade(0.9)).predict(["", "good"])[0]["reason"] == "no text"


def test_only_what_runs_in_use_is_timed(cascade, monkeypatch):
    sure = certainties(cascade(0.5))
    model = compress.open(cascade(float(np.sort(sure)[4])))
    calls = []
    second = model.then.predictor
    monkeypatch.setattr(type(second), "predict", counted(type(second).predict, calls))
    for text, certain in zip(TEXTS, sure, strict=True):
        call, tokens = model.timed_call([text])
        calls.clear()
        call()
        assert len(calls) == (1 if certain >= model.info.threshold else 2)
        assert tokens >= 3


@pytest.mark.parametrize("threshold", [0.0, 1.1])
def test_as_many_windows_are_timed_as_of_a_model_alone(threshold, parts, cascade, monkeypatch):
    folder = cascade(threshold)
    for part in (folder, *(folder / name for name in (FIRST, THEN))):
        info = read_info(part)
        task = info.task.model_copy(update={"long": "mean", "max_length": 8, "max_windows": 4})
        write_info(part, info.model_copy(update={"task": task}))
    try:
        model = compress.open(folder)
        assert len(model.prepare([" ".join(TEXTS)]).examples) > 2
        rows = []
        for kind in {type(model.predictor), type(model.then.predictor)}:
            monkeypatch.setattr(kind, "predict", shaped(kind.predict, rows))
        call, _ = model.timed_call([" ".join(TEXTS)])
        rows.clear()
        call()
        assert rows == [1] * (2 if threshold else 1)
    finally:
        for part in (folder, *(folder / name for name in (FIRST, THEN))):
            info = read_info(part)
            write_info(part, info.model_copy(update={"task": parts[1]}))


def shaped(predict, rows):
    def run(self, arrays):
        rows.append(len(arrays["input_ids"]))
        return predict(self, arrays)

    return run


def counted(predict, calls):
    def run(self, arrays):
        calls.append(self)
        return predict(self, arrays)

    return run


@pytest.mark.parametrize(("rank", "share"), [(3, 0.9), (0, 1.0), (7, 0.05)])
def test_timed_texts_count_by_the_share_on_select(rank, share, cascade):
    sure = np.sort(certainties(cascade(0.5)))
    model, weights = compress.open(cascade(float(sure[rank]), share)).for_timing(TEXTS)
    answered = np.array([model.certainty(text) >= model.info.threshold for text in TEXTS])
    assert 0 < answered.sum() < len(TEXTS)  # both paths are timed
    weights = np.array(weights)
    assert weights.sum() == pytest.approx(1)
    assert weights[answered].sum() == pytest.approx(share)


def test_without_texts_both_models_run(cascade):
    predictor = open_predictor(cascade(0.5))
    assert isinstance(predictor, BothModels)
    ids = np.array([[2, 5, 6, 3]])
    arrays = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
    outputs, second = predictor.predict(arrays), predictor.then.predict(arrays)
    np.testing.assert_array_equal(outputs["logits"], second["logits"])
    assert predictor.describe()["runtime"] == CASCADE


@pytest.mark.parametrize("content", [None, b"", b"{}", b'{"first": "a", "then": "b", "threshold": "x", "share": 1}'])
def test_a_damaged_folder_is_one_message(content, cascade, tmp_path):
    folder = shutil.copytree(cascade(0.5), tmp_path / "damaged")
    (folder / CASCADE_FILE).unlink()
    if content is not None:
        (folder / CASCADE_FILE).write_bytes(content)
    with pytest.raises(ModelError, match=CASCADE_FILE):
        compress.open(folder)


def test_models_of_different_tasks_are_refused(cascade, parts, tmp_path):
    folder, task = shutil.copytree(cascade(0.5), tmp_path / "mixed"), parts[1]
    info = FolderInfo(step="finetune", task=task.model_copy(update={"labels": ("good", "bad")}))
    write_info(folder / THEN, info)
    with pytest.raises(ModelError, match="answer different tasks, or with different labels"):
        compress.open(folder)
    shutil.rmtree(folder / THEN)
    with pytest.raises(ModelError, match="no model folder at"):
        compress.open(folder)


def test_it_is_opened_by_its_parts(cascade):
    folder = cascade(0.5)
    assert isinstance(compress.open(folder), CascadeModel)
    assert model_folders(folder) == [folder / FIRST, folder / THEN]
    assert model_folders(folder / FIRST) == [folder / FIRST]
    with pytest.raises(ModelError) as refused:
        compress.load(folder)
    assert "it is a cascade of two models" in str(refused.value.hint)
