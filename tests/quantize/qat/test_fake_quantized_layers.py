"""Models that compute in PyTorch what their exported copies compute in INT8."""

import copy

import pytest
import torch
from torch import nn

from compress.models.load_save import load
from compress.models.student.build_student import build_student
from compress.prune.surgery import remove_units
from compress.quantize.qat.fake_quantized_layers import fake_quantized
from compress.recipe.student_schema import Student
from compress.runtime import open_predictor
from compress.train.fast_paths.sparse_embeddings import sparse_embeddings
from tests.variant_builder import build

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


def test_fake_quantized_model_repeats_its_int8_copy(tiny_model, tiny_folder, tmp_path):
    check_repeats_int8(tiny_model("bert"), tiny_folder, tmp_path)


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
