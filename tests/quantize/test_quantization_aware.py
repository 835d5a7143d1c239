"""Fake quantization in torch against what numpy and ONNX Runtime compute."""

import copy

import numpy as np
import onnxruntime as ort
import pytest
import torch
from onnx import TensorProto, helper
from torch import nn

from compress.model_folder.model_info import read_info
from compress.models.load_save import load
from compress.models.student.build_student import build_student
from compress.prune.cut_and_recover import cut
from compress.prune.prune_vocabulary import prune_vocabulary
from compress.prune.surgery import remove_units
from compress.quantize.quantization_aware import (
    column_scales,
    fake_quantize_activations,
    fake_quantize_vectors,
    fake_quantize_weights,
    fake_quantized,
    quantization_aware,
    quantization_aware_from_model,
)
from compress.quantize.saturation import can_saturate, unsaturated_scales
from compress.recipe.distill_schema import QuantizationAware
from compress.recipe.prune_schema import Prune
from compress.recipe.student_schema import Student
from compress.runtime import open_predictor
from compress.train.fast_paths.sparse_embeddings import sparse_embeddings
from compress.train.loop import TrainingRun
from tests.conftest import same_weights
from tests.train.conftest import prepared, rows_of
from tests.variant_builder import build


@pytest.fixture(scope="module")
def dynamic_quantize_linear():
    """What ONNX Runtime makes of a tensor: integers, scale and zero point."""
    floats = helper.make_tensor_value_info("x", TensorProto.FLOAT, None)
    names = ("y", "scale", "zero")
    kinds = (TensorProto.UINT8, TensorProto.FLOAT, TensorProto.UINT8)
    outputs = [helper.make_tensor_value_info(name, kind, None) for name, kind in zip(names, kinds, strict=True)]
    graph = helper.make_graph([helper.make_node("DynamicQuantizeLinear", ["x"], names)], "g", [floats], outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return lambda array: session.run(None, {"x": array})


def random(*shape, seed=0, mean=0.0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) + mean


@pytest.mark.parametrize("mean", [0.0, 5.0, -5.0])
def test_activations_are_those_of_onnx_runtime_for_each_text_alone(dynamic_quantize_linear, mean):
    values = random(3, 5, 8, mean=mean)
    rounded = fake_quantize_activations(values)
    for text, result in zip(values, rounded, strict=True):
        integers, scale, zero = dynamic_quantize_linear(text[None].numpy())
        expected = (integers[0].astype(np.float32) - zero) * scale
        np.testing.assert_allclose(result.numpy(), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("inputs", [8, 7, 1])
def test_scales_of_columns_are_those_of_the_exported_model(inputs):
    weights = random(6, inputs)
    weights[2] = 0.0
    scales = unsaturated_scales(weights.T.numpy())
    np.testing.assert_allclose(column_scales(weights).numpy(), scales, rtol=1e-6)
    integers = np.rint(weights.T.numpy() / scales)
    assert not can_saturate(integers.astype(np.int8))
    np.testing.assert_allclose(fake_quantize_weights(weights).numpy(), (integers * scales).T, rtol=1e-5, atol=1e-7)


def test_looked_up_vectors_have_the_scale_of_their_table(dynamic_quantize_linear):
    table = random(20, 4)
    integers, scale, zero = dynamic_quantize_linear(table.numpy())
    expected = (integers.astype(np.float32) - zero) * scale
    np.testing.assert_allclose(fake_quantize_vectors(table[3:5], table).numpy(), expected[3:5], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("function", [fake_quantize_activations, fake_quantize_weights])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_gradients_pass_rounding(function, kind):
    values = random(4, 6).to(kind).requires_grad_()
    result = function(values)
    (result * 3).sum().backward()
    assert result.dtype == kind
    assert not torch.equal(result, values)
    torch.testing.assert_close(values.grad, torch.full_like(values, 3.0))


def test_nothing_but_zeros_stays_zero():
    zeros = torch.zeros(2, 3)
    for result in (fake_quantize_activations(zeros), fake_quantize_weights(zeros), fake_quantize_vectors(zeros, zeros)):
        assert torch.equal(result, zeros)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_values_that_are_not_finite_stay_so(value):
    """The training loop finds the rows responsible by the losses that they make."""
    values = random(2, 6)
    values[0, 0] = value
    result = fake_quantize_activations(values)
    assert not torch.isfinite(result[0]).all()
    assert torch.isfinite(result[1]).all()


TEXTS = [[2, 5, 9, 14, 22, 3], [2, 11, 7, 3], [2, 6, 18, 4, 20, 8, 15, 3]]


def logits_of(model):
    with torch.no_grad():
        return torch.cat([model(input_ids=torch.tensor([text])).logits for text in TEXTS])


def int8_logits(folder, work):
    """The logits of the exported and quantized model, each text alone."""
    for name in ("fp32", "int8"):
        (work / name).mkdir()
    build("onnx-fp32", folder, work / "fp32")
    build("onnx-int8", work / "fp32", work / "int8")
    predictor = open_predictor(work / "int8")
    ids = [torch.tensor([text]).numpy() for text in TEXTS]
    arrays = [{"input_ids": each, "attention_mask": each * 0 + 1, "token_type_ids": each * 0} for each in ids]
    return torch.cat([torch.from_numpy(predictor.predict(each)["logits"]) for each in arrays])


def check_repeats_int8(model, tiny_folder, tmp_path):
    """Rounding errors of fp32 may decide how a number between two integers is rounded, but rarely do."""
    plain, int8 = logits_of(model), int8_logits(tiny_folder(model), tmp_path)
    with fake_quantized(model):
        fake = logits_of(model)
    errors, without = (fake - int8).abs().amax(1), (plain - int8).abs().amax(1)
    assert errors.median() < 1e-2 * without.median()
    assert errors.max() < without.max()


@pytest.mark.slow
def test_fake_quantized_model_repeats_its_int8_copy(tiny_model, tiny_folder, tmp_path):
    check_repeats_int8(tiny_model("bert"), tiny_folder, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["pruned", "factorised"])
def test_models_of_other_shapes_repeat_theirs(shape, tiny_model, tiny_folder, tmp_path):
    model = tiny_model("bert")
    if shape == "pruned":
        model = remove_units(model, [[0, 2], [1]], [list(range(48)), list(range(16, 48))])
    else:
        model = build_student(model, Student(factors=8)).eval()
    check_repeats_int8(model, tiny_folder, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["roberta", "electra", "distilbert", "albert", "mobilebert", "modernbert"])
def test_models_of_every_family_repeat_theirs(family, tiny_model, tiny_folder, tmp_path):
    check_repeats_int8(tiny_model(family, initializer_range=0.1), tiny_folder, tmp_path)


def test_model_is_as_before_after_the_block(tiny_model):
    model = tiny_model("bert")
    before, classes = logits_of(model), [type(module) for module in model.modules()]
    with fake_quantized(model):
        assert not torch.equal(logits_of(model), before)
    assert [type(module) for module in model.modules()] == classes
    assert torch.equal(logits_of(model), before)


def test_gradients_of_words_remain_sparse(tiny_model):
    model = tiny_model("bert")
    words = sparse_embeddings(model, torch.arange(24).numpy())
    with fake_quantized(model), words.sparse():
        model(input_ids=torch.tensor(TEXTS[:1])).logits.sum().backward()
    assert words.table.weight.grad.is_sparse
    assert model.classifier.weight.grad is not None


def test_copies_made_in_the_block_compute_alike(tiny_model):
    model = tiny_model("bert")
    with fake_quantized(model):
        assert torch.equal(logits_of(copy.deepcopy(model)), logits_of(model))


def test_saved_folder_is_that_of_a_plain_model(tiny_model, tiny_folder):
    model = tiny_model("bert")
    with fake_quantized(model):
        saved = load(tiny_folder(model))
    assert {type(module) for module in saved.modules()} >= {nn.Linear, nn.Embedding}
    torch.testing.assert_close(logits_of(saved), logits_of(model))


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
