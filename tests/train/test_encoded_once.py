"""All steps of a run share one encoding of its rows: only the first of them tokenizes."""

import shutil

import pytest

from compress.data.splits.prepare_splits import load_prepared
from compress.data.tokenizer import TextTokenizer
from compress.measure.predict_rows import predict_rows
from compress.model_folder.model_info import read_info
from compress.models.load_save import load
from compress.prune.cut_and_recover import cut
from compress.recipe.distill_schema import Distill
from compress.recipe.prune_schema import Prune
from compress.recipe.student_schema import Student
from compress.recipe.training_schema import Finetune
from compress.runtime import open_predictor
from compress.runtime.predictor import Placement
from compress.train.distill import distill
from compress.train.finetune import finetune

SETTINGS = {"epochs": 1, "batch_size": 8, "precision": "fp32"}


@pytest.fixture
def run_data(prepared, tmp_path):
    """The prepared rows as the data step of a run."""
    return shutil.copytree(prepared, tmp_path / ".steps" / "data-1")


@pytest.mark.slow
def test_only_the_first_step_tokenizes(
    run_data, prepared, tiny_model, tiny_folder, tmp_path, monkeypatch, same_weights
):
    texts, tokenize = [], TextTokenizer.__call__
    monkeypatch.setattr(TextTokenizer, "__call__", lambda *given: texts.append(given[1]) or tokenize(*given))
    source = str(tiny_folder(tiny_model("bert", head="Model", initializer_range=0.05), task=None))
    teacher, student, pruned = (tmp_path / name for name in ("teacher", "student", "pruned"))
    finetune(source, run_data, Finetune(**SETTINGS), 0, teacher)
    assert len(texts) == 50 + 20 + 10  # train, select, and test for the score of the probe
    smaller, losses = Student(layers=1, hidden=16, heads=2, ffn=16), {"soft_label": 1.0}
    distill(teacher, smaller, run_data, Distill(**SETTINGS, losses=losses), 0, student)
    cut(student, teacher, run_data, Prune(ffn=0.5, round_to=8), 0, pruned)
    run, tokens = open_predictor(pruned, Placement("cpu", 1)).predict, TextTokenizer.load(pruned)
    predict_rows(run, load_prepared(run_data).rows("test"), read_info(pruned).task, tokens, 8)
    assert len(texts) == 80

    alone = tmp_path / "alone"  # outside a run, where nothing is cached
    finetune(source, prepared, Finetune(**SETTINGS), 0, alone)
    assert same_weights(load(alone), load(teacher))
