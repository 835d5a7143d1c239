"""Quantization-aware training of tiny models: it serves INT8, and its result is an ordinary model folder."""

import torch

from compress.model_info import read_info
from compress.models.load_save import load
from compress.prune.cut_and_recover import cut
from compress.prune.vocabulary.prune_vocabulary import prune_vocabulary
from compress.quantize.qat.fake_quantized_layers import fake_quantized
from compress.quantize.qat.quantization_aware import quantization_aware, quantization_aware_from_model
from compress.recipe.distill_schema import QuantizationAware
from compress.recipe.prune_schema import Prune
from compress.train.loop import TrainingRun
from tests.conftest import same_weights
from tests.train.conftest import prepared, rows_of

__all__ = ["prepared"]  # a fixture

SETTINGS = {"epochs": 2, "batch_size": 8, "learning_rate": 1e-3, "precision": "fp32"}


def distance(teacher, student, pieces):
    """The mean squared difference of a model's logits in INT8 from the teacher's in full precision."""
    with torch.no_grad(), fake_quantized(student):
        return float((student(**pieces).logits - teacher(**pieces).logits).square().mean())


def test_trained_model_is_nearer_to_its_teacher_in_int8(tiny_model, tiny_tokenizer, tiny_task):
    teacher, rows = tiny_model("bert"), rows_of(40)
    settings = QuantizationAware(**{**SETTINGS, "epochs": 15}, losses={"soft_label": {"form": "mse"}}, hard_label=0.0)
    trained = quantization_aware_from_model(teacher, tiny_tokenizer, rows, [], tiny_task, settings)
    pieces = tiny_tokenizer([row["text"] for row in rows], padding=True, return_tensors="pt")
    assert distance(teacher, trained, pieces) < 0.5 * distance(teacher, tiny_model("bert"), pieces)
    assert same_weights(teacher, tiny_model("bert"))


def test_best_weights_are_chosen_by_the_score_in_int8(tiny_model, tiny_tokenizer, tiny_task, monkeypatch):
    scored, evaluate = [], TrainingRun._evaluate

    def recording(run, score):
        evaluate(run, lambda model: scored.append(type(model.classifier).__name__) or score(model))

    monkeypatch.setattr(TrainingRun, "_evaluate", recording)
    settings = QuantizationAware(**SETTINGS)
    model = quantization_aware_from_model(
        tiny_model("bert"), tiny_tokenizer, rows_of(16), rows_of(8), tiny_task, settings
    )
    assert scored == ["FakeQuantizedLinear"] * 3
    assert type(model.classifier) is torch.nn.Linear


def test_pruned_model_keeps_its_shape_and_vocabulary(tiny_folder, prepared, tmp_path):
    teacher = tiny_folder("bert")
    prune = Prune(heads=0.5, ffn=0.5, batches=2, recover=False)
    cut(teacher, None, prepared, prune, 0, tmp_path / "cut")
    prune_vocabulary(tmp_path / "cut", prepared, "seen", 32, tmp_path / "trimmed")
    before, work = read_info(tmp_path / "trimmed"), tmp_path / "qat"
    quantization_aware(tmp_path / "trimmed", prepared, QuantizationAware(**SETTINGS), 0, work)
    info = read_info(work)
    assert info.step == "qat"
    assert (info.shape, info.pruning, info.vocabulary) == (before.shape, before.pruning, before.vocabulary)
    assert len(info.training.history) == 3
    assert load(work).config.vocab_size == before.vocabulary.pieces
