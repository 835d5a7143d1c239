"""A shared student: its parts learn together, and one that is taken out is trained on."""

import numpy as np
import pytest
import torch
from torch.nn.utils import parameters_to_vector

from compress.console import Console
from compress.model_folder.model_info import TaskInfo, read_info
from compress.model_shapes import part_shape, parts_of
from compress.models import load
from compress.models.encoder_parts import layer_shapes, shape_of
from compress.models.student.factorised_embeddings import factor_count
from compress.recipe.distill_schema import Distill, SharedDistill
from compress.recipe.student_schema import Part
from compress.train.distillation.teachers import Teacher
from compress.train.shared_student import (
    SharedObjective,
    compare_parts,
    compared_rows,
    distill_part,
    held_out,
    train_shared,
)

SETTINGS = SharedDistill(epochs=4.0, batch_size=8, learning_rate=3e-3, precision="fp32")


@pytest.fixture(scope="module")
def teacher(tiny_folder, tiny_model):
    return tiny_folder(tiny_model("bert", initializer_range=0.1))


@pytest.fixture(scope="module")
def shared(teacher, prepared, tmp_path_factory):
    folder = tmp_path_factory.mktemp("shared")
    train_shared(teacher, teacher, prepared, SETTINGS, 0, folder)
    return folder


def test_it_has_the_shape_of_its_start_and_the_last_weights(shared, teacher):
    info = read_info(shared)
    assert (info.shape, info.step) == (read_info(teacher).shape, "shared")
    assert info.training.best_at == info.training.updates  # nothing chooses among them: parts differ in what is best
    assert layer_shapes(load(shared)) == layer_shapes(load(teacher))


@pytest.mark.slow
def test_bf16_moves_its_weights_as_fp32_does(shared, teacher, prepared, tmp_path):
    train_shared(teacher, teacher, prepared, SETTINGS.model_copy(update={"precision": "bf16"}), 0, tmp_path)
    assert read_info(tmp_path).training.precision == "bf16"
    start, *ends = (parameters_to_vector(load(folder).parameters()) for folder in (teacher, shared, tmp_path))
    fp32, bf16 = (end - start for end in ends)
    assert torch.cosine_similarity(fp32, bf16, dim=0) > 0.9


def test_all_its_parts_are_compared_on_rows_that_it_did_not_see(shared, prepared):
    compared = compare_parts(shared, prepared, 0, Console("quiet"))
    assert [part for part, _ in compared] == parts_of(read_info(shared).shape)
    assert all(0 <= score <= 1 for _, score in compared)
    rows = held_out(50, 0)
    assert len(rows) == 5
    assert rows.tolist() == sorted(set(rows.tolist()))
    assert len(held_out(100_000, 0)) == 1000


def test_queries_search_the_documents_of_all_rows_that_are_compared():
    task = TaskInfo(name="days", kind="retrieval", text=("query",), max_length=32, metric="mrr")
    train = [{"query": f"what {n}", "positives": [f"day {n // 2}"], "negatives": ["none"]} for n in range(40)]
    rows, documents = compared_rows(train, task, 0)
    numbers = held_out(40, 0).tolist()
    assert [row["query"] for row in rows] == [f"what {n}" for n in numbers]
    assert {each["document"] for each in documents} == {*(f"day {n // 2}" for n in numbers), "none"}
    for row, number in zip(rows, numbers, strict=True):
        assert [documents[each]["document"] for each in row["relevant"]] == [f"day {number // 2}"]


def test_a_part_is_trained_on_alone(shared, teacher, prepared, tmp_path):
    settings = Distill(epochs=1.0, batch_size=8, learning_rate=1e-3)
    part = Part(layers=1, heads=2, ffn=16)
    distill_part(teacher, shared, part, prepared, settings, 0, tmp_path, step=part.name)
    model, info = load(tmp_path), read_info(tmp_path)
    assert layer_shapes(model) == [(2, 16)]
    assert (info.step, info.training is not None) == ("part-1x2x16", True)


def test_a_part_has_its_word_vectors_in_factors(shared, teacher, prepared, tmp_path):
    settings = Distill(epochs=1.0, batch_size=8, learning_rate=1e-3)
    part = Part(layers=1, heads=2, ffn=16, factors=8)
    distill_part(teacher, shared, part, prepared, settings, 0, tmp_path, step=part.name)
    shape = read_info(tmp_path).shape
    assert factor_count(load(tmp_path)) == shape.embedding_size == 8
    expected = part_shape(read_info(shared).shape, part)
    assert expected.embedding_size == 8
    assert expected.embedding_parameters == pytest.approx(shape.embedding_parameters, rel=0.2)


@pytest.fixture
def objective(tiny_model, tiny_task):
    student = tiny_model("bert")
    teacher = Teacher([(tiny_model("bert", seed=1), 1.0)])
    made = SharedObjective(student, teacher, SETTINGS, tiny_task, 7)
    return made, student


def test_each_update_trains_the_largest_the_smallest_and_others(objective):
    made, student = objective
    smallest, *_, largest = parts_of(shape_of(student))
    drawn = []
    for update in range(20):
        made.begin(update / 20, update)
        assert made._parts[:2] == (largest, smallest)
        assert len(set(map(str, made._parts))) == 4
        drawn.append(made._parts[2:])
    assert len({*map(str, drawn)}) > 10
    made.begin(0.5, 3)
    assert made._parts[2:] == drawn[3]  # of the seed and the number alone: a resumed training draws the same


def test_its_loss_is_the_mean_of_its_parts(objective):
    made, student = objective
    batch = {
        "input_ids": torch.tensor([[2, 5, 6, 3], [2, 7, 3, 0]]),
        "attention_mask": torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]]),
        "token_type_ids": torch.zeros(2, 4, dtype=torch.int64),
        "labels": torch.tensor([0, 1]),
    }
    student.train(False)
    made.begin(0.0, 0)
    whole, parts = made(student, batch), made._parts
    alone = []
    for part in parts:
        made._parts = (part,)
        alone.append(made(student, batch))
    for name, loss in whole.items():
        np.testing.assert_allclose(loss.item(), np.mean([each[name].item() for each in alone]), rtol=1e-5)
