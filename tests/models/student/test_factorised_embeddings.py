import numpy as np
import onnx
import pytest
import torch
from transformers import AutoModel, AutoModelForSequenceClassification, pipeline

from compress.families import FAMILIES
from compress.model_folder.model_info import FolderInfo, read_info
from compress.models import load, save_model
from compress.models.encoder_parts import layer_shapes, shape_of
from compress.models.heads import HEADS
from compress.models.nonuniform_models import match_config_to_weights
from compress.models.read_checkpoint import quiet
from compress.models.student.build_student import build_student
from compress.models.student.factorised_embeddings import (
    FactoredEmbedding,
    embedding_table,
    factor_count,
    factorise,
    word_embeddings,
)
from compress.prune.surgery import remove_units
from compress.recipe.student_schema import Student
from compress.runtime.text_model import TextModel
from tests.variant_builder import build

FACTORED = [name for name, family in FAMILIES.items() if not family.own_embedding_size]


def answers(model, batch):
    model.train(False)
    with torch.no_grad():
        return model(**batch(model))[0]


def test_factorisation_is_the_best_of_its_rank():
    table = torch.randn(40, 12, generator=torch.Generator().manual_seed(0))
    left, values, right = np.linalg.svd(table.numpy(), full_matrices=False)
    for rank in (1, 5, 12):
        short, wide = factorise(table, rank)
        assert (short.shape, wide.shape) == ((40, rank), (rank, 12))
        nearest = (left[:, :rank] * values[:rank]) @ right[:rank]
        np.testing.assert_allclose((short @ wide).numpy(), nearest, atol=1e-5)
        torch.testing.assert_close(wide @ wide.T, torch.eye(rank), atol=1e-6, rtol=0)


@pytest.mark.parametrize("rank", [6, 9])
def test_factorisation_is_exact_from_the_tables_rank(rank):
    generator = torch.Generator().manual_seed(1)
    table = torch.randn(30, 6, generator=generator) @ torch.randn(6, 12, generator=generator)
    short, wide = factorise(table, rank)
    torch.testing.assert_close(short @ wide, table, atol=1e-5, rtol=1e-5)


def test_factorisation_is_closest_for_frequent_tokens():
    table = torch.randn(40, 12, generator=torch.Generator().manual_seed(0))
    counts = torch.zeros(40, dtype=torch.int64)
    counts[:4] = torch.tensor([100, 50, 20, 10])
    short, wide = factorise(table, 4, counts)
    torch.testing.assert_close((short @ wide)[:4], table[:4], atol=0.01, rtol=0.02)
    torch.testing.assert_close(wide @ wide.T, torch.eye(4), atol=1e-6, rtol=0)
    torch.testing.assert_close(short, table @ wide.T, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(factorise(table, 4, torch.ones(40)), factorise(table, 4))


def test_students_factors_are_weighted_by_counts(tiny_model):
    teacher, counts = tiny_model("bert"), torch.zeros(64)
    counts[[2, 3, 5]] = 9
    student = build_student(teacher, Student(factors=4), piece_counts=counts)
    ours, theirs = (embedding_table(word_embeddings(model))[[2, 3, 5]] for model in (student, teacher))
    torch.testing.assert_close(ours, theirs, atol=0.02, rtol=0.05)
    student = build_student(teacher, Student(factors=4))
    assert not torch.allclose(embedding_table(word_embeddings(student))[[2, 3, 5]], theirs, atol=0.02, rtol=0.05)


@pytest.mark.parametrize("name", FACTORED)
def test_full_rank_changes_no_output(name, tiny_model, batch):
    teacher = tiny_model(name)
    student = build_student(teacher, Student(factors=32))
    torch.testing.assert_close(answers(student, batch), answers(teacher, batch), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("head", [entry.suffix for entry in HEADS.values()])
@pytest.mark.parametrize("name", FACTORED)
def test_every_family_and_head_comes_back_bit_for_bit(name, head, tiny_model, batch, tmp_path):
    student = build_student(tiny_model(name, head=head), Student(layers=1, factors=8))
    assert student.config.model_type == f"compress-{name}"
    with quiet():
        student.save_pretrained(tmp_path)
        again = next(entry.auto for entry in HEADS.values() if entry.suffix == head).from_pretrained(tmp_path)
    assert type(again) is type(student)
    ours, theirs = student.state_dict(), again.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)
    assert torch.equal(answers(again, batch), answers(student, batch))


def test_factorised_folder_loads_in_all_runtimes(tiny_model, tiny_tokenizer, tiny_task, tmp_path):
    student = build_student(tiny_model("bert"), Student(factors=8)).eval()
    save_model(student, tiny_tokenizer, tmp_path, FolderInfo(step="distill", made_by="tests", task=tiny_task))
    with quiet():
        assert factor_count(AutoModel.from_pretrained(tmp_path)) == 8
        assert factor_count(AutoModelForSequenceClassification.from_pretrained(tmp_path)) == 8
        classify = pipeline("text-classification", model=str(tmp_path), tokenizer=str(tmp_path))
        result = classify("a good film")[0]
    wanted = student(**tiny_tokenizer("a good film", return_tensors="pt"))[0].softmax(-1)[0]
    assert result["score"] == pytest.approx(wanted.max().item(), rel=1e-5)
    assert factor_count(load(tmp_path)) == 8


def test_shape_of_counts_factorised_parameters(tiny_model, tiny_tokenizer, tiny_task, tmp_path):
    teacher, student = tiny_model("bert"), build_student(tiny_model("bert"), Student(factors=8))
    before, after = shape_of(teacher), shape_of(student)
    saved = 64 * 32 - (64 * 8 + 8 * 32)
    assert after.parameters == before.parameters - saved
    assert after.embedding_parameters == before.embedding_parameters - saved
    assert (after.embedding_size, after.hidden, after.vocabulary) == (8, 32, 64)
    save_model(student, tiny_tokenizer, tmp_path, FolderInfo(step="distill", made_by="tests", task=tiny_task))
    assert read_info(tmp_path).shape == after


def test_padding_vector_stays_zero_and_weights_are_not_tied(tiny_model):
    student = build_student(tiny_model("bert"), Student(factors=8))
    vectors = word_embeddings(student)
    assert isinstance(vectors, FactoredEmbedding)
    assert vectors.padding_idx == 0
    pointers = [parameter.data_ptr() for parameter in student.parameters()]
    assert len(pointers) == len(set(pointers))
    student(input_ids=torch.tensor([[2, 5, 3]])).logits.sum().backward()
    assert vectors.weight.grad is not None
    assert vectors.widen.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("name", [name for name in FACTORED if FAMILIES[name].prunable])
def test_factorised_model_can_be_pruned(name, tiny_model, batch):
    student = build_student(tiny_model(name), Student(factors=8))
    pruned = remove_units(student, [[0, 2], [1]], [list(range(32)), list(range(16, 64))])
    assert (layer_shapes(pruned), factor_count(pruned)) == ([(2, 32), (1, 48)], 8)
    assert match_config_to_weights(pruned) is pruned
    assert answers(pruned, batch).isfinite().all()


@pytest.mark.parametrize("start", ["slice", "svd", "random"])
@pytest.mark.parametrize("name", FACTORED)
def test_factors_work_with_every_start(name, start, tiny_model):
    student = build_student(tiny_model(name), Student(layers=1, hidden=16, heads=2, factors=8, start=start))
    assert (student.config.hidden_size, factor_count(student)) == (16, 8)
    assert embedding_table(word_embeddings(student)).shape == (64, 16)
    if start == "slice":
        narrow = build_student(tiny_model(name), Student(layers=1, hidden=16, heads=2, start="slice"))
        short, wide = factorise(embedding_table(word_embeddings(narrow)), 8)
        torch.testing.assert_close(embedding_table(word_embeddings(student)), short @ wide, atol=1e-5, rtol=1e-5)


def test_factorised_teacher_keeps_or_reduces_its_factors(tiny_model):
    teacher = build_student(tiny_model("bert"), Student(factors=16))
    same, fewer = build_student(teacher, Student(layers=1)), build_student(teacher, Student(layers=1, factors=4))
    assert torch.equal(word_embeddings(same).weight, word_embeddings(teacher).weight)
    assert (factor_count(same), factor_count(fewer)) == (16, 4)
    narrow = build_student(teacher, Student(hidden=16, heads=2))
    assert (factor_count(narrow), word_embeddings(narrow).widen.out_features) == (16, 16)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert", "distilbert"])
def test_factorised_student_is_exported_and_quantized(name, tiny_model, tiny_tokenizer, tiny_task, tmp_path):
    student = build_student(tiny_model(name), Student(layers=1, hidden=20, heads=3, factors=8))
    folder, exported, quantized = (tmp_path / each for each in ("model", "onnx", "int8"))
    save_model(student, tiny_tokenizer, folder, FolderInfo(step="distill", made_by="tests", task=tiny_task))
    for each in (exported, quantized):
        each.mkdir()
    assert build("onnx-fp32", folder, exported).variant.parity["max_abs_difference"] < 1e-4
    build("onnx-int8", exported, quantized)
    for each in (exported, quantized):  # neither multiplies the factors out
        shapes = [tuple(table.dims) for table in onnx.load(each / "model.onnx").graph.initializer]
        assert (shapes.count((64, 8)), shapes.count((64, 20))) == (1, 1)  # word vectors, and as many positions
    texts = ["a good film", "bad plot of the very dull"]
    ours, theirs = (TextModel.open(each).predict(texts) for each in (quantized, folder))
    for one, other in zip(ours, theirs, strict=True):
        assert one["label"] == other["label"] or abs(one["score"] - other["score"]) < 0.1
